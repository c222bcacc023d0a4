#!/bin/bash
# Two trainings: the second one's rate is smaller.
ARGS="--model_name_or_path ../../../demo/model --train_file ../data/facts.jsonl --max_seq_length 64 --num_train_epochs 0.5"
python train.py $ARGS --learning_rate 1e-3 --per_device_train_batch_size 4 --output_dir runs/first
python train.py $ARGS --learning_rate 1e-4 --per_device_train_batch_size 2 --output_dir runs/second
