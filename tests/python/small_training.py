"""A small training by sluice.train under the stand-in for the interposer, for the tests of the helper."""

import sluice.train
import torch
from fake_orders import Fake, Net

SHRINK, DROP, SLEEP, EPOCH = 1, 2, 3, 4
BATCH = 8


class Training:
    """A training of the small net on random data, written as a user would."""

    def __init__(self, fake: Fake, optimizer=torch.optim.AdamW, **how):
        torch.manual_seed(3)
        self.model = Net(fake)
        self.optimizer = optimizer(self.model.parameters(), lr=0.01)
        self.data = torch.randn(BATCH, 1, 8, 8)
        self.labels = torch.randint(3, (BATCH,))
        self.how = how
        self.criterion = torch.nn.CrossEntropyLoss()

    def batch(self) -> None:
        for micro in sluice.train.micro_batches(BATCH, model=self.model, **self.how):
            with micro:
                out = self.model(self.data[micro.slice])
                loss = self.criterion(out, self.labels[micro.slice]) * micro.weight
                loss.backward()
        with sluice.train.step():
            self.optimizer.step()
            self.optimizer.zero_grad()

    def state(self) -> list:
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        return [*self.model.state_dict().values(), *moments, torch.get_rng_state()]


def same(one: list, other: list) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other))


def trained(fake: Fake, batches: int, **how) -> list:
    training = Training(fake, **how)
    for _ in range(batches):
        training.batch()
    return training.state()


def sizes_of_a_batch(training: Training) -> list[int]:
    sizes = []
    for micro in sluice.train.micro_batches(BATCH, model=training.model):
        with micro:
            sizes.append(micro.slice.stop - micro.slice.start)
            training.model(training.data[micro.slice]).sum().backward()
    return sizes


class SmallGpu:
    """100 bytes are in use, and 10 more for each item while a micro-batch runs."""

    def __init__(self):
        self.most = 100
        self.released = []

    def available(self) -> bool:
        return True

    def resident(self) -> int:
        return 100

    def peak(self) -> int:
        most, self.most = self.most, 100
        return most

    def held(self) -> int:
        return (5 - len(self.released)) << 30

    def most_reserved(self) -> int:
        return 3 << 30

    def release(self, most: int) -> None:
        self.released.append(most)
