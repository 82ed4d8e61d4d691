"""Files come from SPARSEVAE_DATA, then the cache, then a mirror; a wrong byte is never accepted from the last two."""

import gc
import hashlib
import logging
import threading
import warnings
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pooch
import pytest

from sparsevae.data.fetch import Collection, cache

GOOD, BAD = b"the right bytes", b"other bytes"
FILES = {name: hashlib.sha256(GOOD + name.encode()).hexdigest() for name in ("a.bin", "b.bin")}

TWO = "https://two.invalid/a.bin (host not reachable)"


def put(folder, content=GOOD, names=tuple(FILES)):
    (folder / "things").mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / "things" / name).write_bytes(content + name.encode())


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEVAE_DATA", str(tmp_path / "own"))
    return tmp_path / "own"


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEVAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARSEVAE_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def offline(monkeypatch):
    """No request leaves; the list collects the addresses that were asked for."""
    asked = []

    def fail(url, **_):
        asked.append(url)
        raise OSError("no route to host")

    monkeypatch.setattr(pooch, "retrieve", fail)
    return asked


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A mirror on this machine that serves tmp_path/served; its address."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    (tmp_path / "served").mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "served")) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/"
        http.shutdown()
        thread.join()


def collection(*mirrors):
    return Collection("things", FILES, mirrors or ("https://one.invalid/", "https://two.invalid/"))


def test_the_users_folder_wins_over_the_cache(kept, own, offline):
    put(own, BAD)  # the user's own files need no checksum
    put(kept)
    assert collection().fetch() == {name: own / "things" / name for name in FILES}
    assert offline == []


def test_the_cache_fills_what_the_users_folder_lacks(kept, own, offline):
    put(own, names=["a.bin"])
    put(kept, names=["b.bin"])
    assert collection().fetch() == {"a.bin": own / "things/a.bin", "b.bin": kept / "things/b.bin"}
    assert offline == []


def test_offline_the_error_names_folders_files_addresses_and_a_way_out(kept, own, offline):
    put(kept, names=["a.bin"])
    with pytest.raises(FileNotFoundError) as caught:
        collection().fetch()
    text = str(caught.value)
    for part in (own / "things", kept / "things", "b.bin", "https://two.invalid/b.bin", "SPARSEVAE_DATA", "digits"):
        assert str(part) in text
    assert "wanted: b.bin" in text
    assert offline == ["https://one.invalid/b.bin", "https://two.invalid/b.bin"]


def test_offline_the_error_begins_with_what_to_do_and_is_short(kept, capfd, caplog, monkeypatch):
    """A host that does not resolve: pooch says nothing of its own, and its reason takes a few words."""
    monkeypatch.setenv("NO_PROXY", "*")
    level = pooch.get_logger().level
    caplog.set_level(logging.INFO, "sparsevae")
    with pytest.raises(FileNotFoundError) as caught:
        collection().fetch()
    text = str(caught.value)
    assert text.startswith(
        f"things is not on this machine and was not downloaded: put its files into {kept / 'things'}"
    )
    assert text.endswith("tried: https://one.invalid/a.bin (host not reachable); " + TWO)
    assert "\n" not in text
    assert capfd.readouterr() == ("", "")
    assert [r.getMessage().split()[:2] for r in caplog.records if r.name.startswith("sparsevae")] == [
        ["downloading", "https://one.invalid/a.bin"],
        ["downloading", "https://two.invalid/a.bin"],
    ]
    assert pooch.get_logger().level == level


def test_a_mirror_without_the_file_is_told_by_its_status(kept, server):
    with pytest.raises(FileNotFoundError, match=r"a.bin \(HTTP status 404\)$"):
        collection(server).fetch()


def test_no_connection_is_left_open_to_a_mirror_without_the_file(kept, server):
    with warnings.catch_warnings(record=True, action="always") as caught:
        for _ in range(3):
            with suppress(FileNotFoundError):
                collection(server).fetch()
            gc.collect()  # of the call before: something still holds the last
    assert [str(warning.message) for warning in caught] == []


def test_offline_the_error_says_when_no_folder_is_set(kept, offline):
    with pytest.raises(FileNotFoundError, match="SPARSEVAE_DATA is not set"):
        collection().fetch()


def test_offline_a_damaged_cache_is_named(kept, offline):
    put(kept, BAD)
    with pytest.raises(FileNotFoundError, match="its sha256 is"):
        collection().fetch()


def test_a_download_lands_in_the_cache_and_is_not_repeated(kept, server, tmp_path, monkeypatch):
    put(tmp_path / "served")
    mirror = server + "things/"
    paths = collection(mirror).fetch()
    assert paths == {name: kept / "things" / name for name in FILES}
    assert paths["a.bin"].read_bytes() == GOOD + b"a.bin"
    monkeypatch.setattr(pooch, "retrieve", None)
    assert collection(mirror).fetch() == paths


def test_a_mirror_with_other_bytes_is_passed_over(kept, server, tmp_path):
    put(tmp_path / "served")
    (tmp_path / "served/wrong").mkdir()
    for name in FILES:
        (tmp_path / "served/wrong" / name).write_bytes(BAD)
    paths = collection(server + "missing/", server + "wrong/", server + "things/").fetch()
    assert paths["b.bin"].read_bytes() == GOOD + b"b.bin"


def test_other_bytes_alone_are_refused_and_not_kept(kept, server, tmp_path):
    put(tmp_path / "served", BAD)
    with pytest.raises(FileNotFoundError, match="hash"):
        collection(server + "things/").fetch()
    assert [path for path in (kept / "things").iterdir() if path.is_file()] == []


def test_a_damaged_cache_is_replaced(kept, server, tmp_path):
    put(tmp_path / "served")
    put(kept, BAD)
    assert collection(server + "things/").fetch()["a.bin"].read_bytes() == GOOD + b"a.bin"


def test_presence_and_source_are_told_without_a_download(kept, own, offline):
    things = collection()
    assert not things.present()
    assert things.where() == f"https://one.invalid/, downloaded into {kept / 'things'}"
    put(own)
    assert things.present()
    assert things.where() == str(own / "things")
    assert offline == []


def test_the_default_cache_is_the_systems(monkeypatch):
    monkeypatch.delenv("SPARSEVAE_CACHE", raising=False)
    assert cache() == pooch.os_cache("sparsevae")
