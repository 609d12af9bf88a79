"""The PyTorch module that a file was exported from, with the same random weights; needs torch and transformers."""

import importlib.util
from pathlib import Path

SMALL = Path(__file__).parents[1] / "models"


def module(path):
    """Of a file that `export.py` beside this one wrote, or that of tests/models; the name of the file says which."""
    import export
    import torch

    path = Path(path)
    torch.manual_seed(0)  # as both scripts do
    if path.parent.samefile(SMALL):
        spec = importlib.util.spec_from_file_location("small_models", SMALL / "export.py")
        small = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(small)
        model = getattr(small, path.name.partition(".")[0])()[0]
    else:
        model = export.MODELS[path.stem]()[0]
    return model.eval()
