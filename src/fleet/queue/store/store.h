// The queue on disk: a folder of its owner's alone, with a database and a folder for each attempt of a run.
//
//   queue.db                    entries and attempts
//   queue.db.lock               held by who writes there (database.h)
//   worker.lock                 held by the worker
//   runs/ID/NUMBER/             of one attempt: log, lock, exit.json (attempt.h)
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fleet/queue/packing/packing.h"
#include "fleet/queue/store/command.h"
#include "fleet/queue/store/database.h"

namespace plimsoll::queue {

// submitted: another scheduler has it, and has not started it yet.
enum class State : uint8_t { waiting, held, submitted, running, done, failed, canceled };
std::string_view name_of(State state);
bool is_over(State state);
// Returns true if an attempt of it is under way.
bool is_begun(State state);

struct Entry {
  int64_t id = 0;
  std::string name;
  std::string group = {};  // that it was added with; empty: none
  bool recipe = false;
  std::vector<std::string> words;        // the command; of a recipe what `train` takes
  std::vector<std::string> environment;  // NAME=VALUE, beside what `add` was called with
  std::string folder;                    // where it runs
  std::string fingerprint;               // of a command (command.h); empty for recipes
  std::vector<CommandVariant> variants;  // that it may yet become where memory runs out, in their order
  std::string output;                    // of a recipe: its run folder; empty where it is not known
  Need need;
  double seconds = 0;                // predicted; 0: unknown
  std::vector<SmallerPlan> smaller;  // of a recipe whose budget is open: what the queue may give it instead
  int priority = 0;
  int retries = 0;             // that are left
  std::vector<int64_t> after;  // starts when all of these are done
  State state = State::waiting;
  bool stop_requested = false;  // of a running one: cancel, or hold where `hold_requested`
  bool hold_requested = false;
  double submitted = 0;  // seconds since 1970
  std::optional<double> promised;
  int attempts = 0;
  std::string note;     // why it is in its state, for people; no program reads it
  int64_t held_by = 0;  // of a held one: the entry that it comes after and waits for in vain; 0: none
  // The columns of its row that could not be read; empty where all is well. A damaged entry can be canceled,
  // and nothing else: it is held unless it is over.
  std::string damage;
};

// The state of an entry whose attempt is over: canceled or held where that was asked for, else `state`.
State state_as_requested(const Entry& entry, State state);

struct Attempt {
  int64_t entry = 0;
  int number = 0;  // from 1
  double started = 0;
  std::optional<double> ended;
  Need need;  // reserved
  std::vector<std::string> cards;
  int64_t peak_bytes = 0;       // of the host, measured; 0: unknown
  int64_t card_peak_bytes = 0;  // the highest of any of its cards that a worker saw; 0: unknown
  std::string outcome;          // in words
  bool done = false;            // it did all that it had to
  // The command that ran.
  std::vector<std::string> words, environment;
  // Its job in another scheduler, as that names it; empty: a run of this machine. kJobToCome: it was about to
  // be handed over.
  std::string job;
};
inline constexpr const char* kJobToCome = "?";
inline constexpr const char* kDatabaseFile = "queue.db";

// Measurements of earlier runs of a command.
struct Learned {
  int runs = 0;             // that were done
  int64_t peak_bytes = 0;   // the highest of them, of the host; 0: none is known
  double seconds = 0;       // of the last of them
  int64_t least_bytes = 0;  // the highest peak of any attempt: less than that is not enough
  // The same for a GPU; shorter peaks than a worker's looks are not in it.
  int64_t card_peak_bytes = 0, least_card_bytes = 0;
};

class Store {
 public:
  // Creates what is missing, for the owner alone. Throws UsageError where the folder is another's, or where
  // others could write to it.
  explicit Store(const std::filesystem::path& folder);

  int64_t add(const Entry& entry);
  // All of them or none; their ids.
  std::vector<int64_t> add(const std::vector<Entry>& entries);
  [[nodiscard]] std::vector<Entry> entries();
  // Those that are not over: what a worker has to see to.
  [[nodiscard]] std::vector<Entry> open_entries();
  // With the `last` of those that are.
  [[nodiscard]] std::vector<Entry> open_entries_and_last(size_t last);
  // Those of a group, by id. Throws UsageError that names the groups there are where it is not a group.
  [[nodiscard]] std::vector<Entry> entries_of(const std::string& group);
  // The umask that the entry was added with; none of entries of before it was kept.
  [[nodiscard]] std::optional<mode_t> mask_of(int64_t id);
  // Throws UsageError where it does not exist.
  [[nodiscard]] Entry entry(int64_t id);
  [[nodiscard]] std::optional<Entry> find(int64_t id);
  [[nodiscard]] std::vector<Attempt> attempts(int64_t id);
  [[nodiscard]] std::optional<Attempt> attempt(int64_t id, int number);
  // The attempts of all entries, by entry and number.
  [[nodiscard]] std::vector<Attempt> attempts();
  // The attempts that are not settled.
  [[nodiscard]] std::vector<Attempt> open_attempts();

  // The measurements of the last 20 attempts with that fingerprint.
  [[nodiscard]] Learned learned(const std::string& fingerprint);

  // Everything that may change of an entry. Throws UsageError for a damaged one that is not over then.
  void update(const Entry& entry);
  // The same, as one step with reading it first: `change` returns whether there is something to write.
  template <class Change>
  Entry change(int64_t id, Change&& change_entry) {
    Transaction transaction(database_);
    Entry found = entry(id);
    if (change_entry(found)) update(found);
    transaction.commit();
    return found;
  }
  // Begins an attempt of an entry that still waits: it runs now, and its next attempt is there. False where
  // it does not wait any more. `change` is of the same step: what it begins with. With a `job` it is
  // submitted, and runs later.
  bool begin(int64_t id, const std::vector<std::string>& cards, double now,
             const std::function<void(Entry&)>& change = {}, const std::string& job = "");
  // Updates an entry whose attempt is under way, and the attempt, with what has become known of both.
  Entry follow(int64_t id, int number, const std::function<void(Entry&, Attempt&)>& change);
  // Takes back an attempt that has not started: the entry is in `state` again, and says why.
  Entry take_back(int64_t id, int number, State state, const std::string& note);
  // Ends an attempt: `settle` says what becomes of the entry, read afresh, and of the attempt.
  template <class Settle>
  Entry finish(int64_t id, int number, Settle&& settle) {
    Transaction transaction(database_);
    Entry found = entry(id);
    for (Attempt& attempt : attempts(id)) {
      if (attempt.number != number) continue;
      settle(found, attempt);
      write(attempt);
    }
    if (found.damage.empty() || is_over(found.state)) update(found);
    transaction.commit();
    return found;
  }

  // Records the memory of an attempt on one of its cards; the highest is kept.
  void saw_on_cards(int64_t id, int number, int64_t bytes);

  // Nothing new starts while the queue is paused, or drains: then its worker ends with the last run.
  void pause(bool paused);
  [[nodiscard]] bool paused();
  void drain(bool draining);
  [[nodiscard]] bool draining();
  // Changes whenever another program has written.
  [[nodiscard]] int64_t version();

  // Throws StoppedError where the path leads to no database, or to another one than was opened: commands would
  // not see what is written to that one. A file system that does not answer is no reason.
  void require_in_place() const;

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] std::filesystem::path folder_of(int64_t id, int attempt) const;

 private:
  std::vector<Entry> read(const std::string& condition);
  std::vector<Attempt> read_attempts(const std::string& condition);
  void write(const Attempt& attempt);
  int64_t insert(const Entry& entry);
  [[nodiscard]] std::optional<int64_t> number_behind_folders();
  void set(const std::string& name, int64_t value);
  [[nodiscard]] int64_t setting(const std::string& name);
  std::filesystem::path folder_;
  Database database_;
};

// Replaces a damaged or foreign database by a new one, with every row of it that can be read. Throws
// UsageError where it does not exist, or while a worker has the queue.
struct Rescued {
  int64_t entries = 0, attempts = 0;
  std::filesystem::path damaged;  // where the old one is now
};
Rescued rescue(const std::filesystem::path& folder);

// PLIMSOLL_QUEUE_DIR, else plimsoll/queue in XDG_STATE_HOME or ~/.local/state.
std::filesystem::path queue_folder();

}  // namespace plimsoll::queue
