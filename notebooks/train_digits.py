"""Trains the little network of the notebooks on scikit-learn's digits and exports it: `python train_digits.py`.

Needs torch, onnxscript and scikit-learn. Writes `digits.onnx`, from `image` (N, 1, 8, 8) in [0, 1] to `probabilities`
(N, 10); `digits_test.npz`, the 360 images and labels that it was not trained on; and `seven.npy`, one of them.
"""

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HERE = Path(__file__).parent


class Digits(nn.Module):
    """Two convolutions, normalized, and two dense layers."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.hidden = nn.Linear(128, 48)
        self.classes = nn.Linear(48, 10)

    def forward(self, image):
        hidden = torch.relu(self.hidden(self.features(image).flatten(1)))
        return torch.softmax(self.classes(hidden), dim=-1)


def main():
    torch.manual_seed(0)
    data = load_digits()
    images = (data.images / 16).astype(np.float32)[:, None]
    train, test, labels, test_labels = train_test_split(images, data.target, test_size=360, random_state=0)
    x, y = torch.tensor(train), torch.tensor(labels)
    model = Digits()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(30):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            loss = nn.functional.nll_loss(torch.log(model(x[batch]) + 1e-9), y[batch])
            loss.backward()
            optimizer.step()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}")
    model.eval()
    with torch.no_grad():
        guesses = model(torch.tensor(test)).argmax(-1).numpy()
    print(f"right: {(guesses == test_labels).sum()} of {len(test)}")
    torch.onnx.export(
        model, (torch.tensor(test[:2]),), HERE / "digits.onnx", dynamo=False, opset_version=17,
        input_names=["image"], output_names=["probabilities"],
        dynamic_axes={"image": {0: "batch"}, "probabilities": {0: "batch"}},
    )  # fmt: skip
    np.savez_compressed(HERE / "digits_test.npz", images=(test * 16).astype(np.uint8), labels=test_labels)
    np.save(HERE / "seven.npy", test[test_labels == 7][:1])


if __name__ == "__main__":
    main()
