"""Files of moving pictures: MP4 by ffmpeg, GIF by Pillow."""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from rlkit.errors import ConfigError, require

Frame = np.ndarray  # [H, W, 3] uint8, with an even height and width
Add = Callable[[Frame], None]
"""Adds a frame, all of which have one size."""

_Process = subprocess.Popen[bytes]
ENDINGS = (".mp4", ".gif")
_GIF_WIDTH, _GIF_FPS = 320, 20  # at most: every frame of a GIF is an image of its own


def check_movie_file(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """The path to write. Raises `ConfigError` if no video can be written there."""
    path = Path(path).expanduser()
    ending = path.suffix.lower()
    require(not path.is_dir(), f"{path} is a directory", f"name a file in it: {path / 'video.mp4'}")
    require(
        ending in ENDINGS,
        f"a video is an .mp4 or a .gif, got {path.name!r}",
        f"write {path.with_suffix('.mp4').name}",
    )
    require(
        overwrite or not os.path.lexists(path),
        f"{path} already exists",
        "choose another name, or overwrite it (--overwrite, overwrite=True)",
    )
    if ending == ".mp4":
        fix = "pip install imageio-ffmpeg, or write a .gif"
        require(can_write_mp4(), "an .mp4 needs ffmpeg, which is not installed", fix)
    return path


def can_write_mp4() -> bool:
    """Whether ffmpeg is there."""
    return _ffmpeg() is not None


@contextlib.contextmanager
def open_movie(path: Path, fps: int) -> Iterator[Add]:
    """Gives the function that adds frames; the file appears when all of them are written.

    Raises `ConfigError` if it cannot be written, or for a frame of another size than the first.
    Errors from making frames pass through.
    """
    new = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix.lower()}")
    write = _gif if path.suffix.lower() == ".gif" else _mp4
    sizes: list[tuple[int, ...]] = []
    try:
        with contextlib.ExitStack() as stack:
            with _told(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                new.touch()  # fails before anything is played
            add = stack.enter_context(write(new, fps))

            def checked(frame: Frame) -> None:
                if not sizes:
                    sizes.append(frame.shape)
                fix = "let render return pictures of one size"
                differs = f"pictures of {sizes[0]} and {frame.shape} are in one video"
                require(frame.shape == sizes[0], differs, fix)
                with _told(path):
                    add(frame)

            yield checked
            with _told(path):
                stack.close()  # writes what is left
                new.replace(path)
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Says by a `ConfigError` that `path` cannot be written."""
    try:
        yield
    except BrokenPipeError:
        raise  # ffmpeg has ended, and says why
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror or error}; choose another file"
        ) from error


@contextlib.contextmanager
def _mp4(path: Path, fps: int) -> Iterator[Add]:
    """Pipes the frames into ffmpeg: H.264 in the form that every browser plays."""
    ffmpeg, has_ended = None, False
    with tempfile.TemporaryFile() as said:

        def add(frame: Frame) -> None:
            nonlocal ffmpeg, has_ended
            if ffmpeg is None:
                ffmpeg = _start_ffmpeg(path, frame.shape, fps, said)
            assert ffmpeg.stdin is not None
            try:
                ffmpeg.stdin.write(frame.tobytes())
            except BrokenPipeError:
                has_ended = True
                raise

        try:
            yield add
        except BaseException:
            if not has_ended:  # otherwise what ffmpeg said follows
                if ffmpeg is not None:
                    ffmpeg.kill()
                raise
        finally:
            if ffmpeg is not None:
                with contextlib.suppress(BrokenPipeError):
                    ffmpeg.communicate()
        if ffmpeg is None or ffmpeg.returncode != 0:
            said.seek(0)
            reason = said.read().decode(errors="replace").strip().splitlines()[-1:]
            raise ConfigError(
                f"ffmpeg could not write the video ({' '.join(reason)}); write a .gif instead"
            )


def _start_ffmpeg(path: Path, shape: tuple[int, ...], fps: int, said: IO[bytes]) -> _Process:
    given = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{shape[1]}x{shape[0]}", "-r", str(fps))
    made = ("-an", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart")
    return subprocess.Popen(
        [str(_ffmpeg()), "-v", "error", "-y", *given, "-i", "-", *made, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=said,
        process_group=0,  # Ctrl-C is for this process, which then ends it
    )


def _ffmpeg() -> str | None:
    """The program that imageio-ffmpeg brings, or the system's; None: there is none."""
    if importlib.util.find_spec("imageio_ffmpeg") is not None:
        import imageio_ffmpeg

        with contextlib.suppress(RuntimeError):  # a platform without a program in the package
            return imageio_ffmpeg.get_ffmpeg_exe()
    return shutil.which("ffmpeg")


@contextlib.contextmanager
def _gif(path: Path, fps: int) -> Iterator[Add]:
    from PIL import Image

    every = -(-fps // _GIF_FPS)  # of the frames, one is kept
    kept: list[Image.Image] = []
    count = 0

    def add(frame: Frame) -> None:
        nonlocal count
        count += 1
        if (count - 1) % every:
            return
        image = Image.fromarray(frame)
        if image.width > _GIF_WIDTH:
            height = round(image.height * _GIF_WIDTH / image.width)
            image = image.resize((_GIF_WIDTH, height))
        kept.append(image.quantize(64))

    yield add
    # GIFs count in hundredths of a second.
    duration = max(2, round(100 * every / fps)) * 10
    kept[0].save(path, save_all=True, append_images=kept[1:], duration=duration, loop=0)
