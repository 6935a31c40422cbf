#!/usr/bin/env bash
# Makes the installed data set and predictor again, from docs/data/programs. Two networks neither train nor chose
# anything: their programs test it.
#   predictor/trained/make.sh        needs a ./x build; takes about a minute
set -eu
cd "$(dirname "$0")/../.."
predict=build/libexec/sluice/sluice-predict
packs=(docs/data/programs/cuda-b{1,4,8}.programs)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$predict" make_dataset "${packs[@]/#/-i}" -i docs/data/programs/h100.jsonl.xz -i docs/data/programs/h200.jsonl.xz \
  --out "$work/dataset"
"$predict" train -i "$work/dataset" --mode h100.by_net:test-vgg16-vit --cache_dir "$work/predictor"
cp "$work"/predictor/predictor.{cbor,json} "$work/dataset/dataset.cbor" predictor/trained/
