#!/bin/bash
# A training script started on four GPUs.
GPUS=4
BATCH=32
MICRO=2
ARGS="--nproc_per_node $GPUS --nnodes 1 --master_port 29501"

torchrun $ARGS train.py \
    --model_name_or_path ../../demo/model --init random \
    --train_file data/facts.jsonl \
    --output_dir runs/launch \
    --per_device_train_batch_size $MICRO \
    --gradient_accumulation_steps $((BATCH / MICRO / GPUS)) \
    --learning_rate 1e-3 \
    --num_train_epochs 1 \
    --model_max_length 64 \
    --lora_r 4 --lora_alpha 8 \
    --bf16 --report_to wandb --run_name first
