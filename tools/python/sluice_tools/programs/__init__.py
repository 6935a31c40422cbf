"""`sluice programs`: tensor programs of networks, made with TVM (docs/reference/programs-format.md).

Only this package imports TVM. It runs in `.venv-tvm`, which `./x programs` makes.
"""
