#!/usr/bin/env bash
# Makes models/tiny anew from the corpus: downloads it from a loopback web, trains the VAE, processes, trains the U-Net,
# exports fp16 files. Two cores: about 95 minutes. usage: train_tiny_model.sh WORK_FOLDER OUT_MODEL_FOLDER
# A second run of the same command goes on where the first stopped.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$1
out=$2
darkroom=build/darkroom
python=.venv/bin/python
mkdir -p "$work"

say() { printf 'tiny: %s\n' "$*"; }
newest_checkpoint() { ls -d "$1"/checkpoints/step-* | tail -n 1; }

if [ ! -e "$work/images/_summary.json" ]; then
  say "corpus"
  port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  "$python" tools/corpus/make_corpus.py "$work/corpus" --trouble-rate 0 --base-url "http://127.0.0.1:$port"
  "$python" -m http.server "$port" --bind 127.0.0.1 --directory "$work/corpus" >/dev/null 2>&1 &
  server=$!
  trap 'kill "$server" 2>/dev/null || true' EXIT
  sleep 1
  say "download"
  "$darkroom" download "$work/images" --metadata "$work/corpus/urls.parquet" --allow-private "127.0.0.1/32:$port" \
    --concurrency 4 --error-budget 0 || {
    rm -rf "$work/images"
    say "not every picture arrived; run the same command again"
    exit 1
  }
fi

if [ ! -d "$work/start" ]; then
  "$darkroom" models init --preset tiny "$work/start" --tokenizer models/tiny/tokenizer
fi
say "training the VAE"
"$darkroom" train recipes/tiny-vae.toml --raw-data "$work/images" --model "$work/start" --output "$work/run-vae"
if [ ! -d "$work/with-vae" ]; then
  "$darkroom" models export "$(newest_checkpoint "$work/run-vae")" "$work/with-vae" --ema --dtype float32
  cp -r "$work/start/unet" "$work/with-vae/unet"
  say "scaling factor: 1 / standard deviation of the latents"
  "$darkroom" process "$work/images" "$work/unscaled" --model "$work/with-vae" --resolution 64 --latents moments --text tokens
  "$python" tools/tiny_model/set_scaling_factor.py "$work/unscaled" "$work/with-vae/vae/config.json"
fi
say "process"
"$darkroom" process "$work/images" "$work/latents" --model "$work/with-vae" --resolution 64
say "training the U-Net"
"$darkroom" train recipes/tiny.toml --data "$work/latents" --model "$work/with-vae" --output "$work/run-unet"
if [ ! -d "$work/with-unet" ]; then
  "$darkroom" models export "$(newest_checkpoint "$work/run-unet")" "$work/with-unet" --ema --dtype float32
fi
say "a second round from the averaged weights, with half the learning rate"
"$darkroom" train recipes/tiny.toml --data "$work/latents" --model "$work/with-unet" --output "$work/run-unet-2" \
  --set model.start=weights --set optimizer.lr=1e-3 --set schedule.max_steps=3000 --set runtime.seed=2025
rm -rf "$out.new"
"$darkroom" models export "$(newest_checkpoint "$work/run-unet-2")" "$out.new" --ema --dtype float16
say "done: $out.new (compare it with $out, then put it in its place)"
