"""Trains two more readers of digits, by Keras and by scikit-learn, and exports them: `python export_digits.py`.

Needs tensorflow, tf2onnx, scikit-learn and skl2onnx. Writes `digits_keras.onnx`, from `image` (N, 1, 8, 8) in [0, 1] to
`probabilities` (N, 10), and `digits_forest.onnx`, from `pixels` (N, 64) to a label and probabilities. They are trained
on the images that `train_digits.py` trains on.
"""

from pathlib import Path

import keras
import numpy as np
import skl2onnx
import tensorflow as tf
import tf2onnx
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

HERE = Path(__file__).parent


def network():
    """Two convolutions, channels last as Keras has them, and two dense layers."""
    return keras.Sequential([
        keras.layers.Permute((2, 3, 1)),
        keras.layers.Conv2D(16, 3, padding="same", activation="relu"), keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"), keras.layers.MaxPooling2D(),
        keras.layers.Flatten(), keras.layers.Dense(48, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ])  # fmt: skip


def main():
    keras.utils.set_random_seed(0)
    data = load_digits()
    images = (data.images / 16).astype(np.float32)[:, None]
    train, test, labels, test_labels = train_test_split(images, data.target, test_size=360, random_state=0)

    net = network()
    net.compile("adam", "sparse_categorical_crossentropy")
    net.fit(train, labels, epochs=30, verbose=0)
    print(f"keras: {(net.predict(test, verbose=0).argmax(-1) == test_labels).sum()} of {len(test)} are right")
    types = [tf.TensorSpec((None, 1, 8, 8), tf.float32, name="image")]
    call = tf.function(lambda image: {"probabilities": net(image)}, input_signature=types)
    tf2onnx.convert.from_function(call, types, opset=18, output_path=str(HERE / "digits_keras.onnx"))

    forest = RandomForestClassifier(20, max_depth=7, random_state=0).fit(train.reshape(-1, 64), labels)
    print(f"forest: {(forest.predict(test.reshape(-1, 64)) == test_labels).sum()} of {len(test)} are right")
    types = [("pixels", skl2onnx.common.data_types.FloatTensorType((None, 64)))]
    options = {"zipmap": False}
    proto = skl2onnx.convert_sklearn(forest, "digits_forest", types, options=options, target_opset=18)
    (HERE / "digits_forest.onnx").write_bytes(proto.SerializeToString())


if __name__ == "__main__":
    main()
