#!/usr/bin/env bash
# Brings the one version of Noto Color Emoji whose bitmaps are the demo's pictures: Debian 12's. Another release of Debian
# has another version, whose pictures differ. It comes from this machine's own Debian mirror, checked by its digest.
# usage: fetch_font.sh [FILE]     FILE: where the font goes (default: NotoColorEmoji.ttf beside make_corpus.py, which looks
#                                 there first). Nothing is fetched where FILE or the installed font is that version.
set -euo pipefail
out=${1:-$(dirname "$0")/NotoColorEmoji.ttf}
installed=${DARKROOM_INSTALLED_FONT:-/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf}
font_sha256=e5899ed38b8ed83e08bd3ac5de09791e9d19d288333a796de1d35ad17396f1ec
package=fonts-noto-color-emoji
deb=${package}_2.042-0+deb12u1_all.deb
deb_sha256=a5ab0f69c7938423862320d9aca5dd187b3fd879d6a9a57dd52e17c3fa8d2751
deb_megabytes=10
apt_helper=/usr/lib/apt/apt-helper

say() { printf 'font: %s\n' "$*"; }
fail() {
  printf 'font: %s\n' "$*" >&2
  exit 1
}
is_the_font() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$font_sha256" ]; }

if is_the_font "$out" || { [ $# -eq 0 ] && is_the_font "$installed"; }; then
  say "Noto Color Emoji 2.042 is there"
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ $# -eq 1 ] && is_the_font "$installed"; then
  cp "$installed" "$work/font.ttf"
else
  # The mirror keeps the packages of all releases side by side: only the file's name is another one.
  uri=$(apt-get download --print-uris "$package" 2>/dev/null | sed -n "s/^'\([^']*\)'.*/\1/p" | head -n 1) || true
  [ -n "$uri" ] || fail "apt knows no mirror for $package: run apt-get update"
  say "fetching Noto Color Emoji 2.042 from Debian's mirror (${deb_megabytes} MB)"
  # apt-helper prefers to download as the user _apt, who cannot write here; as root it says so in a warning.
  "$apt_helper" download-file "${uri%/*}/$deb" "$work/font.deb" "SHA256:$deb_sha256" >"$work/log" 2>&1 ||
    fail "cannot fetch ${uri%/*}/$deb: $(grep -E '^(E|Err)' "$work/log" | tail -n 1)"
  dpkg-deb --fsys-tarfile "$work/font.deb" | tar -xO ./usr/share/fonts/truetype/noto/NotoColorEmoji.ttf >"$work/font.ttf"
fi
is_the_font "$work/font.ttf" || fail "the font in $deb has another digest than $font_sha256"
mkdir -p "$(dirname "$out")"
cp "$work/font.ttf" "$out.new.$$"
mv "$out.new.$$" "$out"
say "Noto Color Emoji 2.042 is at $out"
