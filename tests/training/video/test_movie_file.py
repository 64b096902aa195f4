"""MP4 and GIF files: what is in them, and that nothing is lost or left behind."""

import os
import re
import shutil
import subprocess

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from rlkit.errors import ConfigError
from rlkit.training.video import movie_file
from rlkit.training.video.movie_file import check_movie_file, open_movie

SHADES = (0, 60, 120, 180, 240)


def write(path, fps=20, size=(32, 48)):
    with open_movie(path, fps) as add:
        for shade in SHADES:
            add(np.full((*size, 3), shade, np.uint8))
        add(np.full((*size, 3), SHADES[-1], np.uint8))


def decoded(path):
    """What ffmpeg says of an MP4, and its frames of 32 x 48."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24"]
    done = subprocess.run([*command, "-"], capture_output=True, check=True)
    frames = np.frombuffer(done.stdout, np.uint8).reshape(-1, 32, 48, 3)
    return done.stderr.decode(), frames


def test_an_mp4_holds_every_frame(tmp_path):
    write(tmp_path / "new" / "film.mp4")
    about, frames = decoded(tmp_path / "new" / "film.mp4")
    assert re.search(r"Video: h264 .* yuv420p.* 48x32.* 20 fps", about)
    np.testing.assert_allclose([frame.mean() for frame in frames], (*SHADES, 240), atol=3)


def test_a_gif_holds_every_frame_and_how_long_it_stands(tmp_path):
    write(tmp_path / "film.gif", fps=10)
    with Image.open(tmp_path / "film.gif") as image:
        shown = []
        for number in range(image.n_frames):
            image.seek(number)
            shown.append((np.asarray(image.convert("RGB")).mean(), image.info["duration"]))
    np.testing.assert_allclose([mean for mean, _ in shown], SHADES, atol=1)
    assert [time for _, time in shown] == [100, 100, 100, 100, 200]  # the last one twice


def test_a_gif_of_many_frames_per_second_is_thinned_and_smaller(tmp_path):
    write(tmp_path / "film.gif", fps=40, size=(200, 640))
    with Image.open(tmp_path / "film.gif") as image:
        assert (image.n_frames, image.size, image.info["duration"]) == (3, (320, 100), 50)


@pytest.mark.parametrize("ending", [".mp4", ".gif"])
def test_an_error_leaves_no_file_and_no_process(tmp_path, ending):
    (tmp_path / f"film{ending}").write_bytes(b"older")
    with (
        pytest.raises(RuntimeError, match="environment"),
        open_movie(tmp_path / f"film{ending}", 20) as add,
    ):
        add(np.zeros((32, 32, 3), np.uint8))
        (tmp_path / f".film-{os.getpid()}{ending}").write_bytes(b"a part")
        raise RuntimeError("environment")
    assert [path.name for path in tmp_path.iterdir()] == [f"film{ending}"]
    assert (tmp_path / f"film{ending}").read_bytes() == b"older"


@pytest.mark.parametrize("ending", [".mp4", ".gif"])
@pytest.mark.parametrize("error", [FileNotFoundError, BrokenPipeError])
def test_an_error_of_the_environments_files_is_not_the_videos(tmp_path, ending, error):
    with pytest.raises(error), open_movie(tmp_path / f"film{ending}", 20) as add:
        add(np.zeros((32, 32, 3), np.uint8))
        raise error("of the environment")
    assert list(tmp_path.iterdir()) == []


def test_what_ffmpeg_says_is_passed_on(tmp_path, monkeypatch):
    def fails(path, shape, fps, said):
        command = ["sh", "-c", "echo no room for it >&2; exit 1"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=said)

    monkeypatch.setattr(movie_file, "_start_ffmpeg", fails)
    with pytest.raises(ConfigError, match=re.escape("the video (no room for it); write a .gif")):
        write(tmp_path / "film.mp4")


@pytest.mark.parametrize("ending", [".mp4", ".gif"])
def test_frames_have_one_size(tmp_path, ending):
    message = r"\(32, 32, 3\) and \(32, 34, 3\) are in one video"
    path = tmp_path / f"film{ending}"
    with pytest.raises(ConfigError, match=message), open_movie(path, 20) as add:
        add(np.zeros((32, 32, 3), np.uint8))
        add(np.zeros((32, 34, 3), np.uint8))
    assert not list(tmp_path.iterdir())


@pytest.mark.fast
@pytest.mark.parametrize("place", ["file/film.gif", "/proc/film.gif"])
def test_where_nothing_can_be_written(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("no directory")
    path, message = check_movie_file(place, overwrite=False), rf"cannot write {place}: .*; choose"
    with pytest.raises(ConfigError, match=message), open_movie(path, 20):
        raise AssertionError("nothing may be played")


@pytest.mark.fast
def test_a_directory_is_not_replaced(tmp_path):
    (tmp_path / "film.gif").mkdir()
    for folder in (tmp_path / "film.gif", ".", "/"):
        with pytest.raises(ConfigError, match=r"is a directory; name a file in it: .*video\.mp4"):
            check_movie_file(folder, overwrite=True)


@pytest.mark.fast
def test_a_home_directory_is_meant(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert check_movie_file("~/film.gif", overwrite=False) == tmp_path / "film.gif"


@pytest.mark.fast
def test_a_file_that_exists_is_kept(tmp_path):
    (tmp_path / "film.gif").write_bytes(b"older")
    with pytest.raises(ConfigError, match=r"already exists; choose another name, or overwrite"):
        check_movie_file(tmp_path / "film.gif", overwrite=False)
    check_movie_file(tmp_path / "film.gif", overwrite=True)


@pytest.mark.fast
@pytest.mark.parametrize("name", ["film.avi", "film"])
def test_other_endings_are_refused(name):
    with pytest.raises(ConfigError, match=rf"got '{name}'; write film\.mp4"):
        check_movie_file(name, overwrite=False)


@pytest.mark.fast
def test_without_ffmpeg_an_mp4_is_refused_and_a_gif_is_not(monkeypatch):
    monkeypatch.setattr(movie_file.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install imageio-ffmpeg, or write a \.gif"):
        check_movie_file("film.mp4", overwrite=False)
    check_movie_file("film.gif", overwrite=False)
