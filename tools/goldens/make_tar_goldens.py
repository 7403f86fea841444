#!/usr/bin/env python3
"""Writes tests/golden/tables: tar archives of Python 3.11's tarfile and what it reads in them.

    make_tar_goldens.py [--read FILE]       with --read: prints the lines of a file's members

ustar.tar, pax.tar, gnu.tar    members of every kind and name in that format
written.tar                    plain files as TarWriter has to write them, byte by byte: USTAR_FORMAT, and PAX_FORMAT where that fails
members.tsv                    a line for each member: archive, name in hexadecimal, kind, offset of the first header and of the data, size,
                               sha256 of the data
"""

import hashlib
import io
import pathlib
import sys
import tarfile

OUT = pathlib.Path(__file__).parent.parent.parent / "tests/golden/tables"
KINDS = {tarfile.DIRTYPE: "folder", tarfile.SYMTYPE: "link", tarfile.LNKTYPE: "link", tarfile.CHRTYPE: "device", tarfile.BLKTYPE: "device", tarfile.FIFOTYPE: "device"}

PARTS = ["a.txt", "a.jpg", "noextension", "100/" + "n" * 96, "101/" + "n" * 97, "p" * 155 + "/" + "n" * 100, "two/" * 24 + "x.json", "./dot/b.jpg", "../up.txt", "/root.txt"]
LONG = ["q" * 156 + "/" + "n" * 100, "n" * 101, "d/" + "m" * 300 + ".jpg", "long/" * 200 + "c.txt"]
SPECIAL = [("folder", tarfile.DIRTYPE, ""), ("symbolic", tarfile.SYMTYPE, "/etc/passwd"), ("hard", tarfile.LNKTYPE, "a.txt"),
           ("pipe", tarfile.FIFOTYPE, ""), ("terminal", tarfile.CHRTYPE, ""), ("disk", tarfile.BLKTYPE, "")]
SIZES = [0, 1, 511, 512, 513, 1031]


def data_of(size: int) -> bytes:
    return bytes((7 * i + size) % 251 for i in range(size))


def add_file(archive: tarfile.TarFile, name: str, size: int, **fields) -> None:
    info = tarfile.TarInfo(name)
    info.size = size
    for field, value in fields.items():
        setattr(info, field, value)
    archive.addfile(info, io.BytesIO(data_of(size)))


def add_special(archive: tarfile.TarFile, link: str | None = None) -> None:
    for name, kind, target in SPECIAL:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.devmajor, info.devminor = kind, link if link and target else target, 4, 64
        archive.addfile(info)


def make_archives() -> None:
    with tarfile.open(OUT / "ustar.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        for i, name in enumerate(PARTS):
            add_file(archive, name, SIZES[i % len(SIZES)], mtime=1700000000, uid=1000, uname="someone")
        add_special(archive)
    with tarfile.open(OUT / "pax.tar", "w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "for=all\nmembers"}) as archive:
        for i, name in enumerate([*PARTS, *LONG, "grün/猫.jpg"]):
            add_file(archive, name, SIZES[i % len(SIZES)], mtime=1700000000.25, pax_headers={"SCHILY.xattr.user.note": "x=1\ny" * i})
        add_file(archive, "sized.bin", 700, pax_headers={"size": "700"})
        add_special(archive, "t" * 150)
    with tarfile.open(OUT / "gnu.tar", "w", format=tarfile.GNU_FORMAT) as archive:
        for i, name in enumerate([*PARTS, *LONG]):
            add_file(archive, name, SIZES[i % len(SIZES)], mtime=-5, uid=1 << 31)
        add_special(archive, "t" * 150)
    with open(OUT / "written.tar", "wb") as out:
        names = [name for name in PARTS if not name.startswith((".", "/"))] + LONG + ["grün/猫.jpg"]
        for i, name in enumerate(names):
            info = tarfile.TarInfo(name)
            info.size = SIZES[i % len(SIZES)]
            try:
                header = info.tobuf(tarfile.USTAR_FORMAT, encoding="utf-8")
            except ValueError:
                header = info.tobuf(tarfile.PAX_FORMAT, encoding="utf-8")
            out.write(header + data_of(info.size) + bytes(-info.size % tarfile.BLOCKSIZE))
        out.write(bytes(2 * tarfile.BLOCKSIZE))


def read_members(path: pathlib.Path) -> str:
    lines = ""
    with tarfile.open(path, "r:") as archive:
        for info in archive:
            data = archive.extractfile(info).read() if info.isreg() else b""
            name = info.name + "/" if info.isdir() else info.name  # tarfile takes the slash away.
            fields = [path.name, name.encode("utf-8", "surrogateescape").hex(), KINDS.get(info.type, "file"), info.offset, info.offset_data, info.size]
            lines += "\t".join(map(str, [*fields, hashlib.sha256(data).hexdigest()])) + "\n"
    return lines


def main() -> None:
    if sys.argv[1:2] == ["--read"]:
        print(read_members(pathlib.Path(sys.argv[2])), end="")
        return
    OUT.mkdir(parents=True, exist_ok=True)
    make_archives()
    members = "".join(read_members(OUT / name) for name in ("ustar.tar", "pax.tar", "gnu.tar", "written.tar"))
    origin = f"# tools/goldens/make_tar_goldens.py, tarfile of Python {sys.version.split()[0]}\n"
    (OUT / "members.tsv").write_text(origin + members, encoding="utf-8")


if __name__ == "__main__":
    main()
