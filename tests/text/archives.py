"""Small archives of the form of WMT 2014's, and a server for them on the loopback interface."""

import dataclasses
import gzip
import hashlib
import http.server
import io
import os
import tarfile
import threading
from pathlib import Path

import pytest

from transduce.text import wmt14
from transduce.text.wmt14 import PARTS, Archive

GERMAN = {
    "train": [
        ("Resumption \r", "Wiederaufnahme"),
        ("", "leer"),
        ("A web page", "Eine Seite\u2028im Netz"),
        ("Gold?", "Gold?"),
    ],
    "dev": [("A Republican strategy", "Eine Strategie")],
    "test": [("Orlando & Gutach", "Orlando & Gutach"), ("Two", "Zwei")],
}
FRENCH = {
    "train": [
        ("Resumption", "Reprise"),
        ("Web", "Toile"),
        ("Gold", "Or"),
        ("Resolution 55/2", "Résolution 55/2"),
        ("Canada", "Le Canada"),
        ("Parks", "Parcs"),
    ],
    "dev": [("A Republican strategy", "Une stratégie")],
    "test": [("Spying", "Espionnage")],
}


def lines(*texts: str) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def sgml(*texts: str) -> bytes:
    segments = "".join(f'<seg id="{n}">{text}</seg>\n' for n, text in enumerate(texts, 1))
    return f'<refset>\n<doc docid="d">\n<p>\n{segments}</p>\n</doc>\n</refset>\n'.encode()


def members() -> dict[str, dict[str, bytes]]:
    """The files of each archive, those of other languages among them."""
    return {
        "training-parallel-europarl-v7.tgz": {
            "training/europarl-v7.cs-en.cs": lines("Czech"),
            "training/europarl-v7.cs-en.en": lines("Czech"),
            "training/europarl-v7.de-en.de": lines("Wiederaufnahme", "leer"),
            "training/europarl-v7.de-en.en": lines("Resumption \r", ""),
            "training/europarl-v7.fr-en.en": lines("Resumption"),
            "training/europarl-v7.fr-en.fr": lines("Reprise"),
        },
        "training-parallel-commoncrawl.tgz": {
            "commoncrawl.de-en.annotation": b"\xff\0",
            "commoncrawl.de-en.en": lines("A web page"),
            "commoncrawl.de-en.de": lines("Eine Seite\u2028im Netz"),
            "commoncrawl.fr-en.fr": lines("Toile"),
            "commoncrawl.fr-en.en": lines("Web"),
        },
        "training-parallel-nc-v9.tgz": {
            "training/news-commentary-v9.de-en.de": lines("Gold?"),
            "training/news-commentary-v9.de-en.en": b"Gold?",
            "training/news-commentary-v9.fr-en.en": lines("Gold"),
            "training/news-commentary-v9.fr-en.fr": lines("Or"),
        },
        "training-parallel-un.tgz": {
            "un/undoc.2000.es-en.en": lines("Spanish"),
            "un/undoc.2000.fr-en.en": lines("Resolution 55/2"),
            "un/undoc.2000.fr-en.fr": lines("Résolution 55/2"),
        },
        "training-giga-fren.tar": {
            "giga-fren.release2.fixed.fr.gz": gzip.compress(lines("Le Canada", "Parcs")),
            "giga-fren.release2.fixed.en.gz": gzip.compress(lines("Canada", "Parks")),
        },
        "dev.tgz": {
            "./dev/newstest2013.en": lines("A Republican strategy"),
            "./dev/newstest2013.de": lines("Eine Strategie"),
            "./dev/newstest2013.fr": lines("Une stratégie"),
            "./dev/newstest2014-deen-src.en.sgm": sgml("Orlando &amp; Gutach", "Two"),
            "./dev/newstest2014-deen-ref.de.sgm": sgml("Orlando & Gutach", "Zwei"),
            "./dev/newstest2014-fren-src.fr.sgm": sgml("Espionnage"),
            "./dev/newstest2014-fren-ref.en.sgm": sgml("Spying"),
        },
    }


def pack(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as tar:
        for folder in sorted({os.path.dirname(name) for name in files} - {""}):
            info = tarfile.TarInfo(folder)
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


class Mirror:
    """Serves a folder of archives, and is where `wmt14` takes them from."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.cut = ""
        """"declared": the last bytes of what was announced do not come; "silent": nor announced."""
        self._monkeypatch = monkeypatch
        mirror = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror.asked.append(self.path[1:])
                path = mirror.folder / self.path[1:]
                if not path.exists():
                    return self.send_error(404)
                data = path.read_bytes()
                self.send_response(200)
                if mirror.cut != "silent":
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[:-7] if mirror.cut else data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()
        for name, files in members().items():
            pack(folder / name, files)
        self.register()

    def change(self, name: str, files: dict[str, bytes]) -> None:
        """Another archive, with the right sum."""
        pack(self.folder / name, files)
        self.register()

    def register(self) -> None:
        parts = []
        for part in PARTS:
            data = (self.folder / part.archive.name).read_bytes()
            url, digest = f"{self.url}/{part.archive.name}", hashlib.sha256(data).hexdigest()
            archive = Archive(url, len(data), digest)
            parts.append(dataclasses.replace(part, archive=archive))
        self._monkeypatch.setattr(wmt14, "PARTS", tuple(parts))

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
