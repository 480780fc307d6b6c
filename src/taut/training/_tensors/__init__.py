"""What is done to tensors, by functions that know no plan; everything that needs PyTorch uses it.

Clippings, noise and samplings are described without it: their methods on tensors import from here.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "this part of taut.training needs PyTorch; install it with: pip install 'taut[torch]'",
        name="torch",
    ) from None
