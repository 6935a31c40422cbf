#!/usr/bin/env bash
# Makes the installed data set and predictor again, from docs/data/programs. Two networks neither train nor chose
# anything: their programs test it. The packs come from ./x data.
#   predictor/trained/make.sh        needs a ./x build; takes about two minutes
set -eu
cd "$(dirname "$0")/../.."
predict=build/libexec/sluice/sluice-predict
data=docs/data/programs
inputs=("$data"/cuda-{b1,b4,b8,new}.programs "$data"/{h100,h200,new-h200}.jsonl.xz)
for input in "${inputs[@]}"; do
  [ -e "$input" ] || { echo "make.sh: there is no $input: ./x data makes it" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$predict" make_dataset "${inputs[@]/#/-i}" --out "$work/dataset"
"$predict" train -i "$work/dataset" --mode h100,h200.by_net:test-vgg16-vit --cache_dir "$work/predictor"
cp "$work"/predictor/predictor.{cbor,json} "$work/dataset/dataset.cbor" predictor/trained/
