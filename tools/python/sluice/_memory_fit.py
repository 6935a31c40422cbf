"""How many items fit into a grant: a line through what micro-batches took, bytes = base + slope * items."""

from sluice._orders import NO_LIMIT


class MemoryFit:
    """Fitted by least squares to the peaks of micro-batches. Bytes throughout. Not thread-safe.

    A peak consists of what was there when the micro-batch began (parameters, optimizer state,
    gradients) and of what the micro-batch added. Only the second part is fitted, because the first
    part grows with the first optimizer step.
    """

    def __init__(self) -> None:
        self._added: dict[int, int] = {}  # by number of items, the last peak
        self._resident = [0, 0]  # greatest of the last batch, and of this one
        self._outside = 0  # greatest peak between micro-batches, such as in optimizer steps
        self._warm = False
        self._doubted = NO_LIMIT  # from this grant on, one item is tried although it should not fit
        self._cap: tuple[int, int] | None = None  # a grant, and the items that it does hold

    def saw(self, items: int, resident: int, peak: int) -> None:
        """A micro-batch began with `resident` bytes and held `peak` at most."""
        self._resident[1] = max(self._resident[1], resident)
        if self._warm:
            self._added[items] = max(0, peak - resident)
        self._warm = True  # the first micro-batch also allocates what libraries keep

    def saw_outside(self, peak: int) -> None:
        """Between two micro-batches, at most `peak` bytes were held."""
        self._outside = max(self._outside, peak)

    def batch_ended(self) -> None:
        if self._resident[1]:  # a batch that was not measured says nothing
            self._resident = [self._resident[1], 0]

    def lacked_memory(self, items: int, grant: int) -> None:
        """An allocation failed with this many items under this grant: try fewer until it grows."""
        self._cap = (grant, items * 3 // 4)
        if items == 1:
            self._doubted = NO_LIMIT

    def doubt(self, grant: int) -> None:
        """No larger grant comes: the line or an earlier failure may be wrong, and one item is to be tried."""
        self._doubted = min(self._doubted, grant)

    def fit(self) -> tuple[int, int] | None:
        """Base and slope; None before anything was measured."""
        if not self._added:
            return None
        count = len(self._added)
        mean_items = sum(self._added) / count
        mean_added = sum(self._added.values()) / count
        spread = sum((n - mean_items) ** 2 for n in self._added)
        if spread == 0:
            slope = mean_added / mean_items
        else:
            slope = sum((n - mean_items) * (b - mean_added) for n, b in self._added.items()) / spread
        # Halves round up, as in C++.
        slope = int(max(1, slope) + 0.5)
        fixed = int(max(0, mean_added - slope * mean_items) + 0.5)
        return max(max(self._resident) + fixed, self._outside - slope), slope

    def items(self, grant: int, most: int) -> int:
        """The items of the next micro-batch, 0 to `most`: as many as the grant holds.

        Sizes are multiples of a sixteenth of `most`, because libraries prepare for every new size.
        """
        if self._cap is not None and grant > self._cap[0]:
            self._cap = None
        most_now = most if self._cap is None else min(most, self._cap[1])
        fit = self.fit()
        items = most_now
        if grant != NO_LIMIT and fit is not None:
            base, slope = fit
            items = min(most_now, max(0, grant - base) // slope)
        if items == 0 and grant >= self._doubted:
            return 1
        step = max(1, most // 16)
        return items if items in (most, most_now) or items < step else items - items % step

    def to_measure(self, most: int) -> int | None:
        """A size that the fit still needs: 1 or half; None if it has both."""
        if not self._warm or not self._added:
            return 1
        return max(1, most // 2) if len(self._added) < 2 else None

    def knows(self, items: int) -> bool:
        return items in self._added
