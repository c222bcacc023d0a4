// The memory that all queues of a machine have promised to runs, of all users: a folder that all may write
// to, with a file for each queue and one lock. A queue that starts runs holds the lock from reading the
// others' promises until its own promise is written, so that two queues never give out the same memory.
//
// A promise holds while the supervisor of its run lives, with a worker or without. Files of others are read
// with care: they can only make the free memory seem smaller, by runs that are processes of the file's owner,
// and by so many of them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll::queue {

struct PromisedRun {
  pid_t supervisor = 0;
  int64_t host_bytes = 0;
  int64_t device_bytes = 0;  // on each of `cards`
  std::vector<std::string> cards;
};

// The memory that a run of this queue or another one was promised on a GPU, and its processes there.
struct PromisedOnCard {
  int64_t bytes = 0;
  std::shared_ptr<const std::vector<pid_t>> processes;  // shared by all cards of the run
};

// The promises of all other queues.
struct PromisedByOthers {
  int64_t host_bytes = 0;  // that their runs have yet to take: what they have taken is used, and seen as that
  std::map<std::string, std::vector<PromisedOnCard>> cards;  // by name, whole
  std::map<uid_t, int64_t> host_bytes_of;                    // of each user's queues
};
// "user anna", or "user 1001" where the system has no name for it.
std::string user_words(uid_t user);

class MachineLedger {
 public:
  // `queue_folder` identifies this queue. Throws UsageError where the folder cannot be shared safely.
  MachineLedger(const std::filesystem::path& folder, const std::filesystem::path& queue_folder);

  // The problem with the folder, for people; "" where there is no problem.
  [[nodiscard]] const std::string& warning() const { return warning_; }

  // Held until it ends; nullopt where another process held it all the time that is waited.
  class Lock {
   public:
    explicit Lock(int file) : file_(file) {}
    Lock(Lock&& other) noexcept : file_(other.file_) { other.file_ = -1; }
    Lock& operator=(Lock&&) = delete;
    ~Lock();

   private:
    int file_;
  };
  [[nodiscard]] std::optional<Lock> lock(int wait_milliseconds = 2000) const;
  // "FOLDER/lock is held by user 1001 (process 77)", as far as the system reports it.
  [[nodiscard]] std::string lock_words() const;
  [[nodiscard]] PromisedByOthers promised_by_others() const;
  // Instead of what this queue has promised before.
  void promise(const std::vector<PromisedRun>& runs) const;

 private:
  std::filesystem::path folder_;
  std::string own_name_;
  std::string warning_;
};

// PLIMSOLL_MACHINE_DIR, else plimsoll in /run/lock where all may write, else in /tmp.
std::filesystem::path machine_folder();

}  // namespace plimsoll::queue
