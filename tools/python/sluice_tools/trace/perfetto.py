"""A run as a Perfetto trace: track events, by the messages of the perfetto package."""

from collections.abc import Iterator

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from sluice_tools.trace.reader import Client, Run
from sluice_tools.trace.tracks import ALL, Slices, Window, client_slices

_BATCH = 5000


class _Sequence:
    """The packets of one client. Names are sent once, and then by their number."""

    def __init__(self, number: int):
        self._number = number
        self._names: dict[str, int] = {}

    def packet(self, **fields) -> pb.TracePacket:
        return pb.TracePacket(trusted_packet_sequence_id=self._number, **fields)

    def first(self) -> pb.TracePacket:
        return self.packet(sequence_flags=pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED)

    def names(self, texts) -> Iterator[pb.TracePacket]:
        """Before the events that use them."""
        for text in texts:
            if text not in self._names:
                self._names[text] = len(self._names) + 1
                packet = self.packet(sequence_flags=pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE)
                packet.interned_data.event_names.add(iid=self._names[text], name=text)
                yield packet

    def event(self, at: int, track: int, kind: int, name: str | None = None) -> pb.TracePacket:
        packet = self.packet(timestamp=at,
                             sequence_flags=pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE)
        event = packet.track_event
        event.type, event.track_uuid = kind, track
        if name is not None:
            event.name_iid = self._names[name]
        return packet


def _slices(sequence: _Sequence, slices: Slices, uuid: int) -> Iterator[pb.TracePacket]:
    yield from sequence.names(dict.fromkeys(slices.labels))
    details = slices.details.items()
    for row, (begin, end, label, arrow) in enumerate(
            zip(slices.begin.tolist(), slices.end.tolist(), slices.labels, slices.arrow)):
        packet = sequence.event(begin, uuid, pb.TrackEvent.TYPE_SLICE_BEGIN, label)
        event = packet.track_event
        for name, values in details:
            event.debug_annotations.add(name=name, int_value=values[row])
        if arrow:
            (event.flow_ids if slices.leaves else event.terminating_flow_ids).append(arrow)
        yield packet
        yield sequence.event(end, uuid, pb.TrackEvent.TYPE_SLICE_END)


def _client(run: Run, client: Client, index: int, window: Window) -> Iterator[pb.TracePacket]:
    sequence = _Sequence(index)
    process = index << 32
    yield sequence.first()
    packet = sequence.packet()
    packet.track_descriptor.uuid = process
    packet.track_descriptor.child_ordering = pb.TrackDescriptor.EXPLICIT
    packet.track_descriptor.process.pid = client.pid
    packet.track_descriptor.process.process_name = client.label
    packet.track_descriptor.process.process_labels.append(
        f"priority {client.priority}, {client.policy}")
    yield packet
    told: set[int] = set()
    for slices in client_slices(run, client, index, window):
        uuid = process + slices.rank
        if uuid not in told:
            told.add(uuid)
            packet = sequence.packet()
            packet.track_descriptor.uuid = uuid
            packet.track_descriptor.parent_uuid = process
            packet.track_descriptor.name = slices.track
            packet.track_descriptor.sibling_order_rank = slices.rank
            yield packet
        yield from _slices(sequence, slices, uuid)


def write(run: Run, file, window: Window = ALL) -> None:
    """To a file opened for bytes. A trace is its packets, so traces that follow each other are one."""
    batch = pb.Trace()
    for index, client in enumerate(run.clients, 1):
        for packet in _client(run, client, index, window):
            batch.packet.append(packet)
            if len(batch.packet) >= _BATCH:
                file.write(batch.SerializeToString())
                # A new one: clearing a message does not give its memory back.
                batch = pb.Trace()
    file.write(batch.SerializeToString())
