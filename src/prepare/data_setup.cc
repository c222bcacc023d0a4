// From a recipe's data to rows that a loader reads.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"
#include "chat/builtin_templates.h"
#include "cpu/threads.h"
#include "data/batch/statistics.h"
#include "data/encode/conversations.h"
#include "data/encode/dialogue.h"
#include "data/files/cell.h"
#include "files/json.h"
#include "prepare/order_words.h"
#include "prepare/rendering_words.h"
#include "prepare/row_counts.h"
#include "prepare/setup.h"
#include "prepare/task_setup.h"
#include "tasks/glue.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

bool has_part(const ColumnBinding& binding, std::string_view part) {
  return std::find(binding.parts.begin(), binding.parts.end(), part) != binding.parts.end();
}

// The chat template of the rows, where they are conversations.
std::optional<ChatTemplate> template_of(const Resolved& resolved, const ColumnBinding& binding,
                                        Reads reads = Reads::to_learn) {
  const Recipe& recipe = resolved.recipe;
  const TemplateChoice choice{recipe.model, recipe.data.chat_template, recipe.data.template_source,
                              recipe.data.date, &resolved.files->texts()};
  if (binding.format != RowFormat::preference) return chat_template_of(choice, binding.format);
  // A model without a template reads a dialogue as it stands.
  if (binding.dialogues) return chat_template_of(choice, RowFormat::prompt_response);
  // Texts are a prompt and its response where a template is named, or by the model's own next to a prompt. In
  // TRL's recipes, and in runs that began so, they stand as they are.
  const std::string& name = recipe.data.chat_template;
  const bool by_own = name == "auto" && has_part(binding, "prompt") && reads == Reads::to_learn &&
                      recipe.data.reading > kFirstReading;
  const bool requested = !binding.ready && name != "auto" && name != "plain" && name != "trl";
  if (!binding.ready && !binding.talks && by_own) return chat_template_of(choice, RowFormat::prompt_response);
  return chat_template_of(choice, binding.talks || requested ? RowFormat::messages : RowFormat::text);
}

bool learns_prompts(const Recipe& recipe, RowFormat format) {
  const PromptLoss requested = recipe.data.train_on_prompt;
  switch (rule_of(recipe.task).prompts) {
    case Prompts::whole:
    case Prompts::none:
      return true;
    case Prompts::by_true:
      return requested == PromptLoss::yes;
    case Prompts::as_stated:
      return requested == PromptLoss::yes ||
             (requested == PromptLoss::messages && format == RowFormat::messages);
  }
  throw InternalError("learns_prompts: no such rule");
}

// A reward model gives one answer one number.
TaskSpec task_of(const TaskSpec& task, const ColumnBinding& binding, Reads reads) {
  const bool two = has_part(binding, "rejected");
  if (reads == Reads::to_score && rule_of(task.task).pairs && !two)
    return {.task = Task::classify, .outputs = 1, .problem = ClassProblem::numbers};
  return task;
}

// The tokens that an encoder finds around texts: it is scored at the token before them.
const Affixes& affixes_of(const Recipe& recipe, const Tokenizer& tokenizer) {
  if (tokenizer.affixes().prefix.empty())
    throw UsageError(
        recipe.model +
        ": its tokenizer.json adds no token before a text (post_processor), as encoders are trained with; "
        "save the tokenizer again with transformers");
  return tokenizer.affixes();
}

// The ids that rows of this model may have, and those with a meaning to it.
ModelTokens model_tokens(const ModelSpec& model, bool scores) {
  ModelTokens tokens{.vocab_size = model.vocab};
  // A value head is asked at the last token, whatever that is, as LLaMA-Factory asks it.
  if (scores && !model.value_head) tokens.padding = model.pad_token;
  if (model.encoder) tokens.token_types = model.encoder->token_types;
  if (model.encoder_decoder) tokens.decoder = decoder_tokens(*model.encoder_decoder);
  if (model.encoder_decoder && scores) {
    const auto end = static_cast<int32_t>(model.encoder_decoder->end_token);
    tokens.scored_end = end;
    tokens.around = Affixes{{}, {end}, PairAffixes{{}, {end}, {end}}};
  }
  return tokens;
}

// The rules by which texts become ids; rows of ready ids need no tokenizer.
TextRules text_rules(const Recipe& recipe, const DataSetup& data, const ModelSpec& model) {
  if (!data.tokenizer)
    throw UsageError(
        recipe.model +
        ": has no tokenizer.json or tokenizer.model, which rows of text need (ready token ids do not)");
  if (!model.encoder && !data.special.end_of_text)
    throw UsageError(recipe.model + ": names no end-of-text token (eos_token in tokenizer_config.json)");
  TextRules texts;
  texts.tokenize = [tokenizer = data.tokenizer](std::string_view text, std::vector<int32_t>& ids) {
    tokenizer->encode_into(text, false, ids);
  };
  texts.eos = data.special.end_of_text.value_or(0);
  if (!model.encoder && recipe.data.bos && !recipe.data.joined)
    texts.begin = text_start(*data.tokenizer, texts.eos);
  return texts;
}

// Renders the rows' conversations, where they are some.
EncodeConversation conversations_of(const Resolved& resolved, const DataSetup& data, const RowEncoding& rows,
                                    Reads reads) {
  const Recipe& recipe = resolved.recipe;
  const TaskRule& rule = rule_of(recipe.task);
  auto chat = rule.has_targets ? std::nullopt : template_of(resolved, rows.columns, reads);
  if (!chat) return {};
  std::optional<int32_t> end_of_turn;
  const auto& tokens = recipe.data.special_tokens;
  if (const auto end = tokens.find("eot_token"); end != tokens.end())
    end_of_turn = data.tokenizer->token_id(end->second);
  if (const auto end = tokens.find("eos_token"); end != tokens.end()) chat->end_texts_with(end->second);
  const bool compares = rule.pairs && !rule.scores;  // labels tell where an answer begins
  return conversation_encoder(data.tokenizer, *std::move(chat),
                              {rows.train_on_prompt && !compares, rows.samples.max_length, rows.texts.eos,
                               end_of_turn, rows.reading});
}

// Hides words behind the tokenizer's mask.
void take_masks(const Recipe& recipe, const DataSetup& data, RowEncoding& rows) {
  if (!data.tokenizer)
    throw UsageError(recipe.model +
                     ": has no tokenizer.json or vocab.txt; task: mlm needs the tokenizer's mask token");
  if (!data.special.mask)
    throw UsageError(
        recipe.model +
        ": names no token that hides words (mask_token in tokenizer_config.json), which task: mlm needs");
  rows.masks = MaskRules{.probability = recipe.mlm.probability,
                         .mask = recipe.mlm.mask,
                         .random = recipe.mlm.random,
                         .mask_token = *data.special.mask,
                         .vocab_size = std::min(data.tokenizer->vocab_size(), rows.model.vocab_size),
                         .seed = static_cast<uint64_t>(recipe.seed)};
  rows.is_special = [tokenizer = data.tokenizer](int32_t id) { return tokenizer->is_special(id); };
}

ExampleEncoder make_encoder(const Resolved& resolved, const ColumnBinding& binding, const DataSetup& data,
                            Reads reads = Reads::to_learn) {
  const Recipe& recipe = resolved.recipe;
  const ModelSpec& model = resolved.model;
  RowEncoding rows{.columns = binding};
  rows.samples = {task_of(resolved.task, binding, reads), recipe.data.max_length,
                  recipe.data.targets_at_most()};
  rows.truncation = recipe.data.truncation;
  rows.model = model_tokens(model, rule_of(rows.samples.task.task).scores);
  rows.train_on_prompt = learns_prompts(recipe, binding.format);
  rows.joined = recipe.data.chat_template == "trl";
  rows.uncut = recipe.data.joined;
  rows.learns = reads == Reads::to_learn;
  rows.labels = resolved.labels;
  rows.reading = recipe.data.reading;
  if (recipe.data.joined && binding.format != RowFormat::text)
    throw UsageError(
        formatted("data.packing: joined is for rows of text, and these are {}: say data.packing: true",
                  to_string(binding.format)));
  const bool labelled = binding.format == RowFormat::input_ids && binding.columns.size() > 1;
  if (rule_of(rows.samples.task.task).masks && !labelled) take_masks(recipe, data, rows);
  if (binding.format == RowFormat::input_ids || binding.ready) return ExampleEncoder(rows);
  rows.texts = text_rules(recipe, data, model);
  if (model.encoder) rows.model.around = affixes_of(recipe, *data.tokenizer);
  rows.converse = conversations_of(resolved, data, rows, reads);
  const BuiltinTemplate* named = find_builtin_template(recipe.data.chat_template);
  rows.hides_last = named != nullptr && named->rules.last_is_hidden;
  return ExampleEncoder(rows);
}

// A data set with its columns selected, and the rows that its sources' ranges name.
struct OpenRows {
  Dataset dataset;
  RowReading reading;
  RowSubset rows;
};

// The rows of each source that its range names; sources follow each other in the data set.
RowSubset named_rows(const Dataset& dataset, const std::vector<TrainSource>& sources) {
  const bool all = std::all_of(sources.begin(), sources.end(), [](const auto& s) { return s.rows.is_all(); });
  if (all) return RowSubset::all(dataset.rows());
  std::vector<std::pair<int64_t, int64_t>> spans(sources.size(), {0, 0});  // first row and number of rows
  for (const PlacedUnit& unit : dataset.units()) {
    auto& [first, count] = spans[static_cast<size_t>(unit.source)];
    if (count == 0) first = unit.first_row;
    count += unit.rows;
  }
  std::vector<int64_t> kept;
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto [begin, end] = sources[i].rows.of(spans[i].second);
    for (int64_t row = begin; row < end; ++row) kept.push_back(spans[i].first + row);
  }
  if (kept.empty()) throw UsageError(dataset.name() + ": data.train and data.eval select no rows");
  return RowSubset::only(dataset.rows(), std::move(kept));
}

// TRL reads a column `text` where rows have neither messages nor prompts, whatever else they have.
// Tasks of pairs, and those that score whole sequences, have one format each.
std::optional<RowFormat> format_of(const Recipe& recipe, std::span<const Column> columns) {
  if (const auto only = rule_of(recipe.task).format) return only;
  const std::optional<RowFormat>& format = recipe.data.format;
  const auto has = [&](std::string_view name) {
    return std::any_of(columns.begin(), columns.end(), [name](const Column& c) { return c.name == name; });
  };
  const bool talks = has("messages") || has("conversations") || has("prompt") || has("input_ids");
  if (format || recipe.data.chat_template != "trl" || talks || !has("text")) return format;
  return RowFormat::text;
}

void require_two_texts(const ColumnBinding& binding, const std::string& where) {
  const bool two = binding.format == RowFormat::prompt_response || binding.format == RowFormat::alpaca ||
                   (binding.format == RowFormat::input_ids && binding.columns.size() == 2);
  if (!two)
    throw UsageError(
        where +
        ": task: seq2seq needs a source and a target in each row, such as columns source and target, or "
        "input_ids and labels. Name yours: data.columns: {prompt: ..., response: ...}.");
}

// Shows the first of these rows, `most` of them, as long as `goes_on`. Faults of rows are reported, or
// counted, where all are read.
void look_at_rows(Dataset& dataset, const RowSubset& rows, int64_t most,
                  const std::function<bool(const Row&, int64_t row)>& goes_on) {
  std::optional<size_t> held;
  Row row;
  for (int64_t i = 0; i < std::min(rows.size(), most); ++i) {
    const size_t unit = dataset.unit_of(rows.row(i));
    if (held != unit) dataset.hold(std::span(&unit, 1));
    held = unit;
    try {
      dataset.read(rows.row(i), row);
    } catch (const DamagedError&) {
      continue;
    }
    if (!goes_on(row, rows.row(i))) break;
  }
  dataset.hold({});
}

// Returns true if the answers of the first of these rows that has some are dialogues in one text.
bool has_dialogues(Dataset& dataset, const ColumnBinding& binding, const RowSubset& rows) {
  constexpr int64_t kLookedAt = 64;
  if (binding.format != RowFormat::preference || binding.talks || binding.ready ||
      has_part(binding, "prompt"))
    return false;
  bool all = false;
  look_at_rows(dataset, rows, kLookedAt, [&](const Row& row, int64_t) {
    const auto every = [&](auto is) {
      return (!has_part(binding, "chosen") || is(part_of(row, binding.parts, "chosen"))) &&
             (!has_part(binding, "rejected") || is(part_of(row, binding.parts, "rejected")));
    };
    const bool found = every([](const nlohmann::ordered_json& answer) { return answer.is_string(); });
    all = found && every(holds_dialogue);
    return !found;
  });
  return all;
}

// The meaning of lists of labels, by the first of these rows.
LabelLists label_lists(const TaskSpec& task, Dataset& dataset, const ColumnBinding& binding,
                       const RowSubset& rows) {
  constexpr int64_t kLookedAt = 1000;
  if (rule_of(task.task).classes == nullptr || task.problem != ClassProblem::any_of)
    return LabelLists::unknown;
  LabelListEvidence evidence(classes_of(task));
  look_at_rows(dataset, rows, kLookedAt, [&](const Row& row, int64_t) {
    evidence.add(part_of(row, binding.parts, "label"));
    return true;
  });
  return evidence.found();
}

bool is_verdict(const nlohmann::ordered_json& value) {
  if (value.is_number()) return value.get<double>() == 0.0 || value.get<double>() == 1.0;
  return value.is_boolean() || value == "true" || value == "false" || value == "True" || value == "False";
}

// A column that says of each answer whether it is a good one, as rows of KTO have it.
std::optional<std::string> verdict_column(Dataset& dataset) {
  constexpr int64_t kLookedAt = 64;
  for (const char* name : {"label", "kto_tag"}) {
    const auto columns = dataset.columns();
    const auto column =
        std::find_if(columns.begin(), columns.end(), [&](const Column& c) { return c.name == name; });
    if (column == columns.end()) continue;
    const bool is_flag = column->type == "bool" || column->type == describe_kind(nlohmann::json(true));
    try {
      dataset.select(std::vector<std::string>{name}, ReadAs::json);
    } catch (const UsageError&) {  // another file lacks it
      if (is_flag) return name;
      continue;
    }
    bool some = false, all = true;
    look_at_rows(dataset, RowSubset::all(dataset.rows()), kLookedAt, [&](const Row& row, int64_t) {
      const auto& value = row.front().json;
      some |= !value.is_null();
      all = all && (value.is_null() || is_verdict(value));
      return all;
    });
    if (some && all) return name;
  }
  return std::nullopt;
}

// The columns that rows are read with, as data.columns names them.
std::string named_columns(const ColumnBinding& binding) {
  std::vector<std::string> parts = binding.parts, named;
  if (binding.format == RowFormat::prompt_response) parts = {"prompt", "response"};
  if (binding.format == RowFormat::text) parts = {"text"};
  if (binding.format == RowFormat::input_ids) parts = {"input_ids", "labels"};
  for (size_t i = 0; i < binding.columns.size(); ++i)
    named.push_back(formatted("{}: {}", parts.at(i), binding.columns[i]));
  return join(named, ", ");
}

// Rows of good and bad answers. Where the columns are named, a verdict is known not to be one of them.
void refuse_verdicts(const Recipe& recipe, Dataset& dataset, const ColumnBinding& binding) {
  const bool answers = binding.format == RowFormat::messages || binding.format == RowFormat::alpaca ||
                       binding.format == RowFormat::prompt_response;
  if (!answers || !recipe.data.columns.empty() || recipe.data.reading == kFirstReading) return;
  const auto verdict = verdict_column(dataset);
  if (!verdict) return;
  throw UsageError(
      formatted("{}: column '{}' says whether an answer is good or bad, and task: {} would train on the "
                "bad ones as well: training on such labels (KTO) is not supported. Keep the rows with "
                "good answers, without that column, in a file of their own; to train on every row use "
                "--set 'data.columns={{{}}}'",
                dataset.name(), *verdict, to_string(recipe.task), named_columns(binding)));
}

// A file, its bytes or a list of some. Numbers, flags and empty lists do not count.
bool holds_more_than_text(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value != "";
  return value.is_structured() &&
         std::any_of(value.begin(), value.end(), [](const auto& one) { return !one.is_null() && one != ""; });
}

// Images, sounds or films that belong to rows, by the first of each file. Where the columns are named, rows are known to
// be meant without.
void refuse_images(const Recipe& recipe, const Dataset& dataset, const ColumnBinding& binding) {
  constexpr int64_t kLookedAt = 64;
  constexpr std::array kNames = {"images", "image", "videos", "video", "audios", "audio"};
  if (!recipe.data.columns.empty() || recipe.data.reading < kImagesReading) return;
  const auto refuse = [&](const std::string& where, const char* name) {
    throw UsageError(formatted(
        "{}: column '{}' holds more than text, and training reads text alone. Keep the rows without "
        "it in a file of their own; to train on the text of all rows use --set 'data.columns={{{}}}'",
        where, name, named_columns(binding)));
  };
  for (const char* name : kNames) {
    if (std::ranges::find(binding.columns, name) != binding.columns.end()) continue;
    for (Dataset& file : dataset.files_with(name)) {
      // Bytes of images may fill a row group with gigabytes: they are not read.
      if (find_column(file.columns(), name, file.name()).type.find("binary") != std::string::npos)
        refuse(file.name(), name);
      try {
        file.select(std::vector<std::string>{name}, ReadAs::json);
      } catch (const UsageError&) {  // it has no rows
        continue;
      }
      look_at_rows(file, RowSubset::all(file.rows()), kLookedAt, [&](const Row& row, int64_t number) {
        if (holds_more_than_text(row.front().json)) refuse(file.where(number), name);
        return true;
      });
    }
  }
}

RowReading::Requested requested_of(const Recipe& recipe, const std::vector<TrainSource>& sources, Reads reads,
                                   int64_t most_rows) {
  return {sources,
          recipe.data.on_error,
          recipe.task,
          recipe.classify.glue,
          recipe.data.format,
          recipe.data.columns,
          recipe.data.chat_template == "trl",
          recipe.data.reading,
          reads,
          most_rows};
}

// The rows of another recipe that reads them alike; nothing where it does not.
std::optional<OpenRows> open_again(const RowReading::Requested& requested, const DataSetup* opened) {
  if (opened == nullptr) return std::nullopt;
  for (const auto* source : {&opened->train, &opened->eval}) {
    if (!*source || (*source)->reading.requested != requested) continue;
    RowReading reading = (*source)->reading;
    reading.columns.lists = LabelLists::unknown;  // seen in the rows, by the task's number of classes
    Dataset dataset = (*source)->dataset.again();
    RowSubset rows = named_rows(dataset, requested.sources);
    return OpenRows{std::move(dataset), std::move(reading), std::move(rows)};
  }
  return std::nullopt;
}

// A run that began by older rules reads what it read: of pairs the answers alone, without tools, and by the last of them without
// a question where those are messages next to no instruction, unless data.columns names it.
std::vector<Column> by_rules(const Recipe& recipe, std::span<const Column> columns) {
  const int64_t rules = recipe.data.reading;
  std::vector<Column> known(columns.begin(), columns.end());
  const auto has = [&](const std::string& name) {
    return std::any_of(columns.begin(), columns.end(), [&](const Column& c) { return c.name == name; });
  };
  const auto named = recipe.data.columns.find("chosen");
  const std::string chosen = named == recipe.data.columns.end() ? "chosen" : named->second;
  const bool is_pair = named != recipe.data.columns.end() || has("chosen") || has("chosen_input_ids");
  if (!rule_of(recipe.task).pairs) return known;
  const bool are_messages = std::any_of(columns.begin(), columns.end(), [&](const Column& column) {
    return column.name == chosen && column.kind == ColumnKind::other;
  });
  std::set<std::string> unread;
  if (rules < kPairToolsReading) unread = {"tools"};
  if (is_pair &&
      (rules < kQuestionReading || (rules < kMessagesQuestionReading && are_messages && !has("instruction"))))
    unread.insert({"instruction", "question", "query", "input"});
  for (const auto& [part, column] : recipe.data.columns) unread.erase(column);
  std::erase_if(known, [&](const Column& column) { return unread.contains(column.name); });
  return known;
}

OpenRows open_rows(const Recipe& recipe, const std::vector<TrainSource>& sources,
                   Reads reads = Reads::to_learn, int64_t most_rows = kAllRows,
                   const DataSetup* opened = nullptr) {
  RowReading::Requested requested = requested_of(recipe, sources, reads, most_rows);
  if (auto again = open_again(requested, opened)) return *std::move(again);
  std::vector<WeightedPath> paths;
  for (const TrainSource& source : sources) paths.push_back({source.path, source.weight});
  const GlueTask* glue = recipe.classify.glue ? find_glue_task(*recipe.classify.glue) : nullptr;
  TabText tabs;
  if (glue != nullptr) tabs = {.quotes = false, .header = glue->header};
  Dataset dataset = Dataset::open(paths, recipe.data.on_error, tabs, most_rows);
  const auto bound = [&](std::span<const Column> columns) {
    std::map<std::string, std::string> names = recipe.data.columns;
    const auto has = [&](const std::string& name) {
      return std::any_of(columns.begin(), columns.end(), [&](const Column& c) { return c.name == name; });
    };
    if (glue != nullptr && !has("label") && has(glue->label)) names.emplace("label", glue->label);
    const std::vector<Column> known = by_rules(recipe, columns);
    if (reads == Reads::to_score)
      return bind_to_score(known, names, rule_of(recipe.task).pairs, dataset.name());
    return bind_columns(known, format_of(recipe, known), names, dataset.name());
  };
  ColumnBinding binding = dataset.bind(bound);
  if (reads == Reads::to_learn) {
    refuse_verdicts(recipe, dataset, binding);
    refuse_images(recipe, dataset, binding);
    binding = dataset.bind(bound);  // what they read may have made another row's columns the file's
  }
  if (rule_of(recipe.task).has_targets) require_two_texts(binding, dataset.name());
  dataset.select(binding.columns, binding.read_as());
  RowSubset rows = named_rows(dataset, sources);
  binding.dialogues = has_dialogues(dataset, binding, rows);
  return {std::move(dataset), {std::move(requested), std::move(binding)}, std::move(rows)};
}

// Rows that are too long do not count as rows where the recipe drops them.
void drop_long_rows(const Recipe& recipe, Dataset& dataset, const ExampleEncoder& encoder, int64_t threads,
                    RowSubset& rows) {
  if (recipe.data.truncation == Truncation::drop) rows = rows_that_fit(dataset, rows, encoder, threads);
  if (rows.size() == 0)
    throw UsageError(formatted("{}: every row is longer than data.max_length {}, and data.truncation is drop",
                               dataset.name(), recipe.data.max_length));
}

// The token that ends texts where the recipe names one; others are the tokenizer's, or refused.
void take_special_tokens(const Recipe& recipe, DataSetup& data) {
  for (const auto& [name, text] : recipe.data.special_tokens) {
    const auto id = data.tokenizer->token_id(text);
    const std::string where = formatted("data.special_tokens: {}: '{}' is ", name, text);
    if (!id)
      throw UsageError(formatted(
          "{}not a token of {}; new tokens, which need new rows of the embedding, are not supported", where,
          recipe.model));
    if (name == "eos_token") data.special.end_of_text = id;
    if (name == "bos_token" && data.special.bos && data.special.bos != id)
      throw UsageError(formatted("{}not the token that begins a text in {}; another one is not supported",
                                 where, recipe.model));
  }
}

// Sequences of texts that are joined, of which each begins as the tokenizer begins a text.
void join_rows(const Recipe& recipe, const DataSetup& data, LoaderOptions& options) {
  options.joined = recipe.data.joined;
  if (!recipe.data.joined || !recipe.data.bos || !data.tokenizer || rule_of(recipe.task).masks) return;
  options.joined_begin = text_start(*data.tokenizer, data.special.end_of_text);
  if (std::ssize(options.joined_begin) >= recipe.data.max_length)
    throw UsageError(
        "data.max_length: the tokens that begin a text fill the sequences of data.packing: joined");
}

LoaderOptions train_loader(const Recipe& recipe, const DataSetup& data) {
  LoaderOptions options;
  options.effective = recipe.batch.effective;
  options.packing = recipe.data.packing;
  join_rows(recipe, data, options);
  options.prefetch = recipe.data.prefetch == kAuto ? 2 : recipe.data.prefetch;
  options.order.shuffle = recipe.data.shuffle;
  options.order.seed = static_cast<uint64_t>(recipe.seed);
  options.on_thread_start = unpin_this_thread;
  return options;
}

// Evaluation walks all its rows once, in order, so many at a time.
LoaderOptions eval_loader(const Recipe& recipe, const DataSetup& data, int64_t rows) {
  LoaderOptions options;
  options.effective = rows;
  join_rows(recipe, data, options);
  options.prefetch = 1;
  options.epochs = 1;
  options.order.shuffle = Shuffle::off;
  options.on_thread_start = unpin_this_thread;
  return options;
}

void open_eval(const Resolved& resolved, int64_t threads, const DataSetup* opened, DataSetup& data) {
  const Recipe& recipe = resolved.recipe;
  const EvalSource& source = recipe.data.eval;
  // As many for each process.
  const int64_t rows = recipe.eval.micro == kAuto ? round_up(recipe.batch.effective, recipe.devices)
                                                  : recipe.eval.micro * recipe.devices;
  if (source.kind == EvalSource::Kind::none) return;
  const bool apart = source.kind == EvalSource::Kind::path;
  OpenRows open =
      open_rows(recipe, apart ? std::vector<TrainSource>{{source.path, 1.0, source.rows}} : recipe.data.train,
                Reads::to_learn, kAllRows, opened);
  ColumnBinding& columns = open.reading.columns;
  columns.lists = label_lists(resolved.task, open.dataset, columns, open.rows);
  if (columns.lists == LabelLists::unknown) columns.lists = data.train->reading.columns.lists;
  ExampleEncoder encoder = make_encoder(resolved, columns, data);
  if (apart) {
    drop_long_rows(recipe, open.dataset, encoder, threads, open.rows);
    data.eval.emplace(DataSource{std::move(open.dataset), std::move(open.reading), std::move(open.rows),
                                 std::move(encoder), eval_loader(recipe, data, rows)});
    return;
  }
  const auto seed = static_cast<uint64_t>(recipe.seed);
  HoldOut parts = source.kind == EvalSource::Kind::count
                      ? hold_out(data.train->rows, source.count, seed)
                      : hold_out(data.train->rows, source.percent / 100.0, seed);
  data.train->rows = std::move(parts.train);
  data.eval.emplace(DataSource{std::move(open.dataset), std::move(open.reading), std::move(parts.held_out),
                               std::move(encoder), eval_loader(recipe, data, rows)});
}

// The tokenizer of the model folder, where it has one.
DataSetup with_tokenizer(const Resolved& resolved) {
  DataSetup data;
  data.tokenizer = resolved.tokenizer();
  if (!data.tokenizer) return data;
  data.special = resolved.files->special_tokens(resolved.paths.base);
  take_special_tokens(resolved.recipe, data);
  return data;
}

}  // namespace

RowsToScore open_to_score(const Resolved& resolved, bool talks, bool two) {
  const Recipe& recipe = resolved.recipe;
  const DataSetup data = with_tokenizer(resolved);
  const bool rewards = rule_of(recipe.task).pairs;
  if (recipe.data.train.empty()) {
    ColumnBinding binding{rewards ? RowFormat::preference : RowFormat::sentence_label, {}};
    binding.parts = {rewards ? "chosen" : "sentence"};
    if (two) binding.parts.emplace_back(rewards ? "prompt" : "sentence2");
    binding.talks = rewards && talks;
    return {make_encoder(resolved, binding, data, Reads::to_score), std::nullopt};
  }
  OpenRows open = open_rows(recipe, recipe.data.train, Reads::to_score);
  ColumnBinding& columns = open.reading.columns;
  columns.talks |= rewards && talks && !columns.ready;
  const ExampleEncoder encoder = make_encoder(resolved, columns, data, Reads::to_score);
  DataSource source{std::move(open.dataset), std::move(open.reading), std::move(open.rows), encoder,
                    eval_loader(recipe, data, recipe.batch.effective)};
  source.loader.longest_row = sample_data(source.dataset, source.rows, encoder).largest.size;
  return {encoder, std::move(source)};
}

DecoderTokens decoder_tokens(const EncoderDecoderSpec& model) {
  return {static_cast<int32_t>(model.start_token), static_cast<int32_t>(model.pad_token)};
}

DataSetup open_data(const Resolved& resolved, const Counting& counting, bool full_rows,
                    const DataSetup* opened) {
  const Recipe& recipe = resolved.recipe;
  DataSetup data = with_tokenizer(resolved);
  OpenRows open = open_rows(recipe, recipe.data.train, Reads::to_learn, kAllRows, opened);
  ColumnBinding& columns = open.reading.columns;
  columns.lists = label_lists(resolved.task, open.dataset, columns, open.rows);
  ExampleEncoder encoder = make_encoder(resolved, columns, data);
  const int64_t named = open.rows.size();
  drop_long_rows(recipe, open.dataset, encoder, counting.threads, open.rows);
  data.dropped_rows = named - open.rows.size();
  data.chat = template_of(resolved, columns);
  data.labels = resolved.labels;
  if (data.chat && data.tokenizer) begin_texts(*data.tokenizer, data.special.end_of_text, *data.chat);
  data.train.emplace(DataSource{std::move(open.dataset), std::move(open.reading), std::move(open.rows),
                                std::move(encoder), train_loader(recipe, data)});
  open_eval(resolved, counting.threads, opened, data);
  measure_rows(recipe, counting, full_rows, data);
  data.summary->rendering = rendering_words(resolved, data.train->reading.columns, data);
  describe_order(recipe, counting.every_row, data);
  const LoaderOptions& loader = data.train->loader;
  if ((loader.packing || loader.joined) && data.summary->sampled_rows == 0)
    data.packed_steps = count_packed_steps(data.train->dataset, data.train->rows, data.train->encoder, loader,
                                           1, counting.threads);
  if (loader.joined && data.packed_steps == 0)
    refuse_short_texts(data.train->dataset.name(), data.train->encoder.samples());
  if (loader.joined && data.eval &&
      count_packed_steps(data.eval->dataset, data.eval->rows, data.eval->encoder, data.eval->loader, 1,
                         counting.threads) == 0)
    refuse_short_texts(data.eval->dataset.name(), data.eval->encoder.samples());
  return data;
}

FirstRows open_first_rows(const Resolved& resolved, int64_t count) {
  const Recipe& recipe = resolved.recipe;
  // A source that names some of its rows has them counted from an end that has to be found.
  const bool all = std::ranges::all_of(recipe.data.train, [](const auto& one) { return one.rows.is_all(); });
  constexpr int64_t kLookedAt = 1000;  // what lists of labels and answers mean is found by so many
  Resolved uncut_rows = resolved, read_rows = resolved;
  Recipe& whole = uncut_rows.recipe;
  whole.data.max_length = int64_t{1} << 24;
  whole.data.target_length = whole.data.max_length;
  whole.data.truncation = Truncation::right;
  Recipe& read = read_rows.recipe;
  if (read.data.max_length == kLongestRow) read.data.max_length = whole.data.max_length;
  DataSetup data = with_tokenizer(read_rows);
  OpenRows open =
      open_rows(read, read.data.train, Reads::to_learn, all ? std::max(count, kLookedAt) : kAllRows);
  ColumnBinding& columns = open.reading.columns;
  columns.lists = label_lists(resolved.task, open.dataset, columns, open.rows);
  ExampleEncoder encoder = make_encoder(read_rows, columns, data);
  ExampleEncoder uncut = make_encoder(uncut_rows, columns, data);
  data.labels = resolved.labels;
  data.chat = template_of(read_rows, columns);
  if (data.chat && data.tokenizer) begin_texts(*data.tokenizer, data.special.end_of_text, *data.chat);
  data.train.emplace(DataSource{std::move(open.dataset), std::move(open.reading), std::move(open.rows),
                                std::move(encoder), train_loader(read, data)});
  data.summary.emplace();
  data.summary->rendering = rendering_words(read_rows, data.train->reading.columns, data);
  return {std::move(data), std::move(uncut)};
}

std::string unprinted_tools_note(const DataSetup& data) {
  if (!data.train || !data.chat || data.chat->mentions("tools")) return "";
  const ColumnBinding& columns = data.train->reading.columns;
  const bool talks = columns.format == RowFormat::messages || columns.talks;
  if (!talks || std::ranges::find(columns.columns, "tools") == columns.columns.end()) return "";
  return formatted(
      "{}: the chat template prints no tools, so that the column 'tools' is not trained on (data.template and "
      "data.template_source name another template)",
      data.train->dataset.name());
}

Resolved with_length(const Resolved& resolved, int64_t threads, const DataSetup* opened) {
  const Recipe& recipe = resolved.recipe;
  if (recipe.data.max_length != kLongestRow) return resolved;
  if (recipe.data.train.empty())
    throw UsageError(
        "data.max_length: null is the length of the longest row, and there are no rows: give a number, or "
        "name data.train");
  Resolved measured = resolved;
  measured.recipe.data.max_length = int64_t{1} << 24;
  measured.recipe.data.truncation = Truncation::right;
  const auto longest = [&](DataSource& source) {
    return measure_data(source.dataset, source.rows, source.encoder, {}, threads).longest;
  };
  DataSetup data = open_data(measured, {}, false, opened);
  Resolved settled = resolved;
  int64_t& length = settled.recipe.data.max_length;
  length = std::max<int64_t>(2, longest(*data.train));
  if (data.eval) length = std::max(length, longest(*data.eval));
  return settled;
}

int64_t total_steps(const Recipe& recipe, DataSource& train, int64_t threads) {
  if (recipe.schedule.max_steps) return *recipe.schedule.max_steps;
  const double epochs = recipe.schedule.epochs;
  if (train.loader.packing || train.loader.joined)
    return count_packed_steps(train.dataset, train.rows, train.encoder, train.loader, epochs, threads);
  const RowOrder order(train.dataset.units(), train.rows, train.loader.order);
  return steps_of_epochs(epochs, ceil_div(order.rows(), train.loader.effective));
}

}  // namespace plimsoll
