"""A run as a Perfetto trace: track events, by the messages of the perfetto package."""

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from sluice_tools.trace.reader import Client, Run
from sluice_tools.trace.tracks import ALL, Slices, Window, client_slices

_BATCH = 5000


class _Writer:
    """A trace is its packets, so traces that follow each other are one."""

    def __init__(self, file):
        self._file = file
        self._batch = pb.Trace()

    def packet(self, **fields) -> pb.TracePacket:
        """A new one, to be filled before the next."""
        if len(self._batch.packet) >= _BATCH:
            self.flush()
        return self._batch.packet.add(**fields)

    def flush(self) -> None:
        self._file.write(self._batch.SerializeToString())
        # A new one: clearing a message does not give its memory back.
        self._batch = pb.Trace()


class _Sequence:
    """The packets of one client. Names are sent once, and then by their number."""

    def __init__(self, writer: _Writer, number: int):
        self._writer, self._number = writer, number
        self._names: dict[str, int] = {}
        self.packet(sequence_flags=pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED)

    def packet(self, **fields) -> pb.TracePacket:
        return self._writer.packet(trusted_packet_sequence_id=self._number, **fields)

    def name(self, text: str) -> int:
        """Its number; told before the events that use it."""
        number = self._names.get(text)
        if number is None:
            number = self._names[text] = len(self._names) + 1
            packet = self.packet(sequence_flags=pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE)
            packet.interned_data.event_names.add(iid=number, name=text)
        return number

    def event(self, at: int, track: int, kind: int) -> pb.TrackEvent:
        event = self.packet(timestamp=at, sequence_flags=pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE).track_event
        event.track_uuid = track
        event.type = kind  # pyright: ignore[reportAttributeAccessIssue]  its enumeration is made at run time
        return event


def _write_slices(sequence: _Sequence, slices: Slices, uuid: int) -> None:
    details = slices.details.items()
    for row, (begin, end, label, arrow) in enumerate(
        zip(slices.begin.tolist(), slices.end.tolist(), slices.labels, slices.arrow)
    ):
        name = sequence.name(label)
        event = sequence.event(begin, uuid, pb.TrackEvent.TYPE_SLICE_BEGIN)
        event.name_iid = name
        for detail, values in details:
            event.debug_annotations.add(name=detail, int_value=values[row])
        if arrow:
            (event.flow_ids if slices.leaves else event.terminating_flow_ids).append(arrow)
        sequence.event(end, uuid, pb.TrackEvent.TYPE_SLICE_END)


def _write_client(sequence: _Sequence, run: Run, client: Client, index: int, window: Window) -> int:
    process = index << 32
    told = sequence.packet().track_descriptor
    told.uuid = process
    told.child_ordering = pb.TrackDescriptor.EXPLICIT
    told.process.pid = client.pid
    told.process.process_name = client.label
    told.process.process_labels.append(f"priority {client.priority}, {client.policy}")
    known: set[int] = set()
    count = 0
    for slices in client_slices(run, client, index, window):
        uuid = process + slices.rank
        if uuid not in known:
            known.add(uuid)
            told = sequence.packet().track_descriptor
            told.uuid, told.parent_uuid = uuid, process
            told.name, told.sibling_order_rank = slices.track, slices.rank
        _write_slices(sequence, slices, uuid)
        count += len(slices.begin)
    return count


def write(run: Run, file, window: Window = ALL) -> int:
    """To a file opened for bytes. Returns the number of slices."""
    writer = _Writer(file)
    count = sum(
        _write_client(_Sequence(writer, index), run, client, index, window)
        for index, client in enumerate(run.clients, 1)
    )
    writer.flush()
    return count
