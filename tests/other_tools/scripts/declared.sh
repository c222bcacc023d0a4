#!/bin/bash
# What the command leaves out stands in declared.py.
srun bash -c "torchrun --nproc_per_node 2 declared.py --model_name_or_path ../../../demo/model --data_path ../data/facts.jsonl \
  --per_device_train_batch_size 2 --num_train_epochs 1 --seed 7"
