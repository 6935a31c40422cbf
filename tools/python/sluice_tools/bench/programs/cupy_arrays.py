"""Array programs in CuPy; in NumPy on a CPU, which has the same functions."""

import importlib

from sluice_tools.bench.programs.setting import Setting


def steps(setting: Setting):
    xp = importlib.import_module("cupy" if setting.gpu else "numpy")
    made = xp.random.RandomState(0)
    side = setting.size(4096, 64)
    image = made.standard_normal((side, side)).astype(xp.float32)
    left, right = (made.standard_normal((side, side)).astype(xp.float32) for _ in range(2))

    def step():
        spectrum = xp.fft.fft2(image)
        smooth = xp.fft.ifft2(spectrum * xp.exp(-xp.abs(spectrum) / side)).real
        mixed = xp.tanh(left @ right / side) + smooth
        mixed.sum(axis=0)
        if not setting.gpu:
            return lambda: None
        event = xp.cuda.Event(disable_timing=True)
        event.record()
        return event.synchronize

    return step
