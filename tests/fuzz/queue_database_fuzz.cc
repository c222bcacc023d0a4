// A queue's database that somebody has edited. Each line changes one value of a small queue's, or its form:
//
//   e COLUMN ROW VALUE   of table entries; a: attempts, s: settings. VALUE is i and a whole number, r and a
//   real
//                        one, t and a text, or n for NULL
//   d TABLE COLUMN       the column is gone
//   v VERSION            the version that its tables are said to have
//   p PLACE BYTE         a byte of the file
//
// Whatever values it holds, `queue list`, `top`, `report --queue`, a worker's looks and `queue cancel` go
// through. A database of another form may be refused, and is read when it was rescued.
#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/printable.h"
#include "fleet/batch/batch.h"
#include "fleet/queue/local_launcher.h"
#include "fleet/queue/store/tables.h"
#include "fleet/top/gather.h"
#include "fuzz/target.h"

using namespace plimsoll;
using queue::Entry;
using queue::State;
using queue::Store;

namespace {

const FuzzFolder& folder() {
  static const FuzzFolder kFolder;
  return kFolder;
}
const FuzzFolder& machine_folder() {
  static const FuzzFolder kFolder;
  return kFolder;
}

Entry command(const std::string& name) {
  Entry entry;
  entry.name = name;
  entry.words = {"true", "a=2"};
  entry.folder = "/";
  entry.need = {0, 0, 10 << 20, 1};
  return entry;
}

// 1 done, 2 failed, 3 runs, 4 waits for 3, 5 waits, 6 waits and has smaller plans and variants, 7 is held.
std::string small_queue() {
  {
    Store store(folder().path());
    for (const char* name : {"done", "failed", "runs"}) {
      const int64_t id = store.add(command(name));
      store.begin(id, {}, 1e9 + static_cast<double>(id));
      if (id == 3) continue;
      store.finish(id, 1, [&](Entry& entry, queue::Attempt& attempt) {
        entry.state = id == 1 ? State::done : State::failed;
        attempt.ended = 1e9 + 60;
        attempt.peak_bytes = 5 << 20;
      });
    }
    Entry after = command("after");
    after.after = {3};
    store.add(after);
    store.add(command("waits"));
    Entry smaller = command("smaller");
    smaller.smaller = {{5 << 20, 9.5, 1}};
    smaller.variants = {{"a=1", {{"true", "a=1"}, {}}, "f"}};
    store.add(smaller);
    Entry held = command("held");
    held.state = State::held;
    store.add(held);
  }
  std::ifstream file(folder().path() / queue::kDatabaseFile, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

template <class Number>
Number number_of(std::string_view text) {
  Number number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

struct Changes {
  bool form = false;    // not values alone
  bool of_any = false;  // values that every entry may be read with
  std::set<int64_t> entries;
};

bool has_column(const queue::Table& table, std::string_view column) {
  return std::find(table.columns.begin(), table.columns.end(), column) != table.columns.end();
}

void change_value(queue::Database& database, const queue::Table& table, std::string_view rest,
                  Changes& made) {
  const auto [column, behind] = parted(rest, ' ');
  const auto [row, value] = parted(behind, ' ');
  if (!has_column(table, column) || value.empty()) return;
  const auto id = number_of<int64_t>(row);
  if (table.name == "entries") made.entries.insert(id);
  if (table.name == "attempts" || column == "id") made.of_any = true;
  queue::Statement statement(database,
                             "UPDATE " + table.name + " SET " + std::string(column) + " = ? WHERE rowid = ?");
  if (value[0] == 'i') statement.bind(number_of<int64_t>(value.substr(1)));
  if (value[0] == 'r') statement.bind(number_of<double>(value.substr(1)));
  if (value[0] == 't') statement.bind(std::string(value.substr(1)));
  if (value[0] == 'n') statement.bind_null();
  statement.bind(id).step();
}

// Changes a line of the database's content, with which the file is written again.
void change_line(queue::Database& database, std::string_view line, Changes& made) {
  const auto [kind, rest] = parted(line, ' ');
  for (const queue::Table& table : queue::tables())
    if (kind == table.name.substr(0, 1)) change_value(database, table, rest, made);
  if (kind == "v") {
    database.run("PRAGMA user_version = " + std::to_string(number_of<int>(rest)));
    made.form = true;
  }
  if (kind == "d") {
    const auto [name, column] = parted(rest, ' ');
    for (const queue::Table& table : queue::tables()) {
      if (name != table.name.substr(0, 1)) continue;
      database.run(has_column(table, column)
                       ? "ALTER TABLE " + table.name + " DROP COLUMN " + std::string(column)
                       : "DROP TABLE " + table.name);
      made.form = true;
    }
  }
}

Changes change(std::string_view text) {
  Changes made;
  const std::filesystem::path file = folder().path() / queue::kDatabaseFile;
  std::vector<std::string_view> lines;
  for (std::string_view rest = text; !rest.empty() && lines.size() < 20;) {
    lines.push_back(parted(rest, '\n').first);
    rest = parted(rest, '\n').second;
  }
  {
    queue::Database database(file.string());
    for (const std::string_view line : lines) accepted([&] { change_line(database, line, made); });
  }
  std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
  for (const std::string_view line : lines) {
    if (!line.starts_with("p ")) continue;
    const auto [place, byte] = parted(line.substr(2), ' ');
    bytes.seekp(number_of<uint16_t>(place));
    bytes.put(static_cast<char>(number_of<uint8_t>(byte)));
    made.form = true;
  }
  return made;
}

// A worker that finds no room for anything, so that none of the commands runs. What ran has ended meanwhile:
// it would be started again otherwise.
void look_twice(Store& store) {
  for (const Entry& entry : store.open_entries()) {
    if (!queue::is_begun(entry.state)) continue;
    const std::filesystem::path attempt = store.folder_of(entry.id, entry.attempts);
    std::filesystem::create_directories(attempt);
    std::ofstream(attempt / "lock") << 1;
    std::ofstream(attempt / "exit.json") << R"({"code": 0, "peak_bytes": 1048576, "seconds": 1})";
  }
  queue::WorkerOptions options;
  options.until_done = true;
  options.report = [](const std::string&) {};
  queue::LocalOptions local;
  local.machine = {int64_t{1} << 30, 4, {{"card", int64_t{1} << 30}}};
  local.free_host_bytes = [] { return std::numeric_limits<int64_t>::min() / 2; };
  local.machine_folder = machine_folder().path();
  queue::LocalLauncher launcher(store, options, local);
  queue::Worker worker(store, launcher, options);
  (void)worker.look();
  (void)worker.look();
}

void look_at(Store& store) {
  for (const Entry& entry : store.entries()) {
    (void)(std::string(name_of(entry.state)) + queue::title(entry));
    (void)store.attempts(entry.id);
    (void)store.learned(entry.fingerprint);
    (void)store.mask_of(entry.id);
  }
  top::Gatherer gatherer(store, [] { return int64_t{1} << 30; });
  const top::Frame frame = gatherer.take();
  (void)(top::frame_text(frame, 80) + json_text(top::frame_json(frame)));
  const batch::Batch batch = batch::take(store, 1.1e9, std::numeric_limits<double>::infinity());
  (void)(batch::batch_text(batch, 80) + json_text(batch::batch_json(batch)) + batch::batch_page(batch));
}

void use(const Changes& made) {
  Store store(folder().path());
  look_at(store);
  look_twice(store);
  for (const Entry& entry : store.entries()) {
    check_internal(made.form || made.of_any || made.entries.contains(entry.id) || entry.damage.empty(),
                   "an entry that nobody changed: " + entry.damage);
    check_internal(entry.damage.empty() || entry.state == State::held || is_over(entry.state),
                   "a damaged entry is not held");
    check_internal(!queue::is_begun(entry.state) || !store.attempt(entry.id, entry.attempts)->job.empty(),
                   "what has ended is still under way");
    if (is_over(entry.state)) continue;
    store.change(entry.id, [](Entry& found) {
      found.state = State::canceled;
      return true;
    });
    check_internal(store.entry(entry.id).state == State::canceled, "it cannot be canceled");
  }
  look_at(store);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string kQueue = small_queue();
  folder().clear();
  machine_folder().clear();
  folder().write(queue::kDatabaseFile, kQueue);
  const Changes made = change(text_of(data, size));
  if (!made.form) {
    use(made);
  } else if (!accepted([&] { use(made); }) && accepted([&] { queue::rescue(folder().path()); })) {
    use(made);
  }
  return 0;
}
