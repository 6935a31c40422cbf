"""What a Python program may ask of Sluice, the library that shares one GPU between programs.

`sluice.train` lets a training give memory back within milliseconds and go on with smaller
micro-batches. Without Sluice preloaded every function does nothing, so a script needs no second
version. Importing the package imports no torch.
"""
