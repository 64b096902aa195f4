"""What TensorBoard reads from its files."""

import pathlib
from typing import Any


def read_events(directory: pathlib.Path) -> Any:
    """TensorBoard's own reader of the files of one run, without its limits on how much it keeps."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(directory), size_guidance={"scalars": 0, "tensors": 0})
    return reader.Reload()


def curves(reader: Any) -> dict[str, list[tuple[int, float]]]:
    """(step, value) of each curve."""
    return {
        name: [(event.step, event.value) for event in reader.Scalars(name)]
        for name in reader.Tags()["scalars"]
    }


def texts(reader: Any) -> dict[str, list[tuple[int, str]]]:
    """(step, text) of each name in the text tab."""
    return {
        name.removesuffix("/text_summary"): [
            (event.step, event.tensor_proto.string_val[0].decode())
            for event in reader.Tensors(name)
        ]
        for name in reader.Tags()["tensors"]
        if name.endswith("/text_summary")
    }


def hparams(reader: Any) -> dict[str, Any]:
    """The settings in the HParams tab."""
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    found = {}
    try:
        contents = reader.PluginTagToContent("hparams")
    except KeyError:  # no file has any
        return {}
    for content in contents.values():
        data = HParamsPluginData.FromString(content)
        for name, value in data.session_start_info.hparams.items():
            found[name] = getattr(value, value.WhichOneof("kind"))
    return found
