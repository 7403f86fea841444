#!/usr/bin/env bash
# Makes models/tiny anew from the corpus and nothing else; the pictures of held_out.json (docs/corpus.md) are never seen.
# First VAE and U-Net learn the 1,870 pictures without a skin tone, then both go on with all 3,160 training pictures.
# Two quiet cores: about three hours (reckoned from img/s, not yet measured whole). usage: train_tiny_model.sh WORK_FOLDER OUT_MODEL_FOLDER
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

# train_unet RUN IMAGES START OUT FLAGS...: OUT is the model START with the U-Net that RUN trained on IMAGES.
train_unet() {
  local run=$work/$1 images=$work/images-$2 start=$3 model=$4
  shift 4
  "$darkroom" process "$images" "$run-latents" --model "$start" --resolution 64
  "$darkroom" train recipes/tiny.toml --data "$run-latents" --model "$start" --output "$run" "$@"
  [ -d "$model" ] || "$darkroom" models export "$(newest_checkpoint "$run")" "$model" --ema --dtype float32
}

fetch_pictures untoned
fetch_pictures training
if [ ! -d "$work/start" ]; then
  "$darkroom" models init --preset tiny "$work/start" --tokenizer models/tiny/tokenizer
fi
say "1/5 the VAE learns the pictures without a skin tone"
train_vae run-vae-1 untoned "$work/start" "$work/with-vae-1"
say "2/5 the U-Net learns them"
train_unet run-unet-1 untoned "$work/with-vae-1" "$work/with-unet-1"
say "3/5 a second round from the averaged weights, with half the learning rate"
train_unet run-unet-2 untoned "$work/with-unet-1" "$work/with-unet-2" \
  --set model.start=weights --set optimizer.lr=1e-3 --set schedule.max_steps=3000 --set runtime.seed=2025
say "4/5 the VAE goes on with all training pictures"
train_vae run-vae-3 training "$work/with-unet-2" "$work/with-vae-3" \
  --set model.start=weights --set optimizer.lr=1.5e-3 --set schedule.max_steps=6000 --set runtime.seed=2025
say "5/5 the U-Net goes on with them"
train_unet run-unet-3 training "$work/with-vae-3" "$work/with-unet-3" \
  --set model.start=weights --set schedule.max_steps=6000 --set batch.micro=32 --set runtime.seed=2026
rm -rf "$out.new"
"$darkroom" models export "$(newest_checkpoint "$work/run-unet-3")" "$out.new" --ema --dtype float16
say "done: $out.new (compare it with $out, then put it in its place)"
