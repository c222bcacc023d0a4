"""A training script: only what it declares is read, and no line of it is run."""
from dataclasses import dataclass, field

import transformers


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="someone/a-model")
    use_lora: bool = field(default=True, metadata={"help": "train adapters"})
    lora_r: int = 4
    lora_alpha: float = 8


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    learning_rate: float = field(default=1e-3)
    model_max_length: int = field(
        default=48,
        metadata={"help": "longer rows are cut"},
    )


raise SystemExit("this script is never run")
