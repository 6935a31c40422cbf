"""What a Python program may tell Sluice, the library that shares one GPU between programs.

`job` and `announce` mark the program's work, `set_target` says what latency is good enough.
`sluice.asgi` and `sluice.ray` do so for servers. `sluice.train` lets a training give memory back
within milliseconds and go on with smaller micro-batches. Without Sluice preloaded every function
does nothing, so a program needs no second version. Importing the package imports no torch.
"""

from sluice._jobs import Announcement, announce, attached, job, set_target

__all__ = ["Announcement", "announce", "attached", "job", "set_target"]
