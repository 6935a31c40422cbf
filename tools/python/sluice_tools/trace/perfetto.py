"""A run as a Perfetto trace: track events, by the messages of the perfetto package."""

from collections.abc import Iterator

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from sluice_tools.trace.reader import Client, Run
from sluice_tools.trace.tracks import ALL, Track, Window, client_tracks

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


def _slices(sequence: _Sequence, track: Track, uuid: int) -> Iterator[pb.TracePacket]:
    texts = [str(text) for text in track.label.categories]
    yield from sequence.names(texts)
    details = [(name, values.tolist()) for name, values in track.details.items()]
    arrows = track.arrow.tolist() if track.arrow is not None else None
    columns = (track.begin.tolist(), track.end.tolist(), track.label.codes.tolist())
    for row, (begin, end, code) in enumerate(zip(*columns)):
        packet = sequence.event(begin, uuid, pb.TrackEvent.TYPE_SLICE_BEGIN, texts[code])
        event = packet.track_event
        for name, values in details:
            event.debug_annotations.add(name=name, int_value=values[row])
        if arrows is not None and arrows[row]:
            (event.flow_ids if track.leaves else event.terminating_flow_ids).append(arrows[row])
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
    for rank, track in enumerate(client_tracks(run, client, index, window), 1):
        packet = sequence.packet()
        packet.track_descriptor.uuid = process + rank
        packet.track_descriptor.parent_uuid = process
        packet.track_descriptor.name = track.name
        packet.track_descriptor.sibling_order_rank = rank
        yield packet
        yield from _slices(sequence, track, process + rank)


def write(run: Run, file, window: Window = ALL) -> None:
    """To a file opened for bytes. A trace is its packets, so traces that follow each other are one."""
    batch = pb.Trace()
    for index, client in enumerate(run.clients, 1):
        for packet in _client(run, client, index, window):
            batch.packet.append(packet)
            if len(batch.packet) >= _BATCH:
                file.write(batch.SerializeToString())
                batch.Clear()
    file.write(batch.SerializeToString())
