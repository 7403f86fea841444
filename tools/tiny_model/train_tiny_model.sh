#!/usr/bin/env bash
# Makes models/tiny anew from the corpus and nothing else; the pictures of held_out.json (docs/corpus.md) are never seen.
# The VAE learns the 1,870 pictures without a skin tone, then all 3,160 training pictures; the U-Net learns these from random weights.
# Two quiet cores: about two and a half hours (reckoned from img/s, not yet measured whole). usage: train_tiny_model.sh WORK_FOLDER OUT_MODEL_FOLDER
# A second run of the same command goes on where the first stopped.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$1
out=$2
darkroom=${DARKROOM_PROGRAM:-build/darkroom}
python=.venv/bin/python
mkdir -p "$work"

say() { printf 'tiny: %s\n' "$*"; }
newest_checkpoint() { ls -d "$1"/checkpoints/step-* | tail -n 1; }

# fetch_pictures PART: the corpus's PART as an image dataset in images-PART.
fetch_pictures() {
  local part=$1 port server status=0
  [ ! -e "$work/images-$part/_summary.json" ] || return 0
  say "corpus, download: $part"
  port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  "$python" tools/corpus/make_corpus.py "$work/corpus-$part" --only "$part" --trouble-rate 0 --base-url "http://127.0.0.1:$port"
  "$python" -m http.server "$port" --bind 127.0.0.1 --directory "$work/corpus-$part" >/dev/null 2>&1 &
  server=$!
  trap 'kill "$server"' EXIT
  sleep 1
  "$darkroom" download "$work/images-$part" --metadata "$work/corpus-$part/urls.parquet" \
    --allow-private "127.0.0.1/32:$port" --concurrency 4 --error-budget 0 || status=$?
  kill "$server"
  trap - EXIT
  if [ "$status" -ne 0 ]; then
    rm -rf "$work/images-$part"
    say "not every picture arrived; run the same command again"
    exit 1
  fi
}

# train_vae RUN IMAGES START OUT FLAGS...: OUT is the model START with the VAE that RUN trained on IMAGES.
train_vae() {
  local run=$work/$1 images=$work/images-$2 start=$3 model=$4
  shift 4
  "$darkroom" train recipes/tiny-vae.toml --raw-data "$images" --model "$start" --output "$run" "$@"
  [ ! -d "$model" ] || return 0
  rm -rf "$model.new" "$run-moments"
  "$darkroom" models export "$(newest_checkpoint "$run")" "$model.new" --ema --dtype float32
  # scaling factor: 1 / standard deviation of the latents
  "$darkroom" process "$images" "$run-moments" --model "$model.new" --resolution 64 --latents moments --text tokens
  "$python" tools/tiny_model/set_scaling_factor.py "$run-moments" "$model.new/vae/config.json"
  mv "$model.new" "$model"
}

# train_unet RUN START OUT DTYPE FLAGS...: OUT is the model START with the U-Net's averaged weights after RUN.
train_unet() {
  local run=$work/$1 start=$work/$2 model=$work/$3 dtype=$4
  shift 4
  "$darkroom" train recipes/tiny.toml --data "$work/latents" --model "$start" --output "$run" "$@"
  [ ! -d "$model" ] || return 0
  rm -rf "$model.new"
  "$darkroom" models export "$(newest_checkpoint "$run")" "$model.new" --ema --dtype "$dtype"
  mv "$model.new" "$model"
}

fetch_pictures untoned
fetch_pictures training
[ -d "$work/start" ] || "$darkroom" models init --preset tiny "$work/start" --tokenizer models/tiny/tokenizer
say "1/4 the VAE learns the pictures without a skin tone"
train_vae run-vae-1 untoned "$work/start" "$work/with-vae-1"
say "2/4 it goes on with all training pictures"
train_vae run-vae-2 training "$work/with-vae-1" "$work/with-vae-2" \
  --set model.start=weights --set optimizer.lr=1.5e-3 --set schedule.max_steps=6000 --set runtime.seed=2025
if [ ! -d "$work/prepared" ]; then
  rm -rf "$work/prepared.new"
  cp -r "$work/with-vae-2" "$work/prepared.new"
  "$python" tools/tiny_model/prepare_networks.py "$work/prepared.new"
  mv "$work/prepared.new" "$work/prepared"
fi
"$darkroom" process "$work/images-training" "$work/latents" --model "$work/prepared" --resolution 64
say "3/4 the U-Net learns them, from random weights"
train_unet run-unet-1 prepared with-unet-1 float32 --set schedule.max_steps=4005 --set runtime.seed=2026
say "4/4 it goes on"
train_unet run-unet-2 with-unet-1 with-unet-2 float16 \
  --set model.start=weights --set optimizer.lr=1.2e-3 --set schedule.max_steps=2799 --set runtime.seed=2027
rm -rf "$out.new"
cp -r "$work/with-unet-2" "$out.new"
say "done: $out.new (compare it with $out, then put it in its place)"
