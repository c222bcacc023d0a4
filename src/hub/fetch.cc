#include "hub/fetch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/regular_file.h"
#include "base/system_error.h"
#include "files/atomic.h"
#include "hub/client.h"

namespace plimsoll::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestListing = size_t{256} << 20;
constexpr size_t kReadSize = size_t{1} << 20;
constexpr mode_t kMode = 0666;  // the umask takes what it takes

[[noreturn]] void fail(const fs::path& path, int error) {
  const std::string message = formatted("{}: {}", path.string(), system_message(error));
  if (is_exhaustion(error))
    throw StoppedError(message + ". What was received is kept: the same command continues from there");
  throw UsageError(message);
}

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags)
      : number_(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, kMode)) {
    if (number_ < 0) fail(path, errno);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(number_); }
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

// The lock of a file in the cache, where huggingface_hub takes it. Held until destruction.
class BlobLock {
 public:
  BlobLock(const fs::path& path, const std::string& file, const FetchWatch& watch)
      : descriptor_(path, O_RDWR | O_CREAT) {
    if (flock(descriptor_.number(), LOCK_EX | LOCK_NB) == 0) return;
    watch.say(formatted("another process fetches {}: waiting for it", file));
    while (flock(descriptor_.number(), LOCK_EX) != 0)
      if (errno != EINTR) fail(path, errno);
  }

 private:
  Descriptor descriptor_;
};

// The received part of one file, and its checksum so far.
class PartialFile {
 public:
  PartialFile(fs::path path, const HubFile& file)
      : path_(std::move(path)),
        file_(file),
        descriptor_(path_, O_RDWR | O_CREAT),
        digest_(file.kind, file.bytes) {
    std::vector<char> buffer(kReadSize);
    while (true) {
      const ssize_t got = pread(descriptor_.number(), buffer.data(), buffer.size(), bytes_);
      if (got < 0) fail(path_, errno);
      if (got == 0) break;
      digest_.add({buffer.data(), static_cast<size_t>(got)});
      bytes_ += got;
    }
    if (bytes_ > file_.bytes) restart();
  }
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  void restart() {
    if (ftruncate(descriptor_.number(), 0) != 0) fail(path_, errno);
    bytes_ = 0;
    digest_ = Digest(file_.kind, file_.bytes);
  }
  void add(std::string_view piece) {
    if (bytes_ + static_cast<int64_t>(piece.size()) > file_.bytes)
      throw DamagedError(
          formatted("{}: the hub sends more than the {} bytes that it has listed", file_.name, file_.bytes));
    digest_.add(piece);
    while (!piece.empty()) {
      const ssize_t written = pwrite(descriptor_.number(), piece.data(), piece.size(), bytes_);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(path_, errno);
      bytes_ += written;
      piece.remove_prefix(static_cast<size_t>(written));
    }
  }
  // Returns true if the content has the checksum; ends the digest.
  [[nodiscard]] bool is_right() { return bytes_ == file_.bytes && digest_.hex() == file_.digest; }
  void publish(const fs::path& name) {
    if (fsync(descriptor_.number()) != 0 || rename(path_.c_str(), name.c_str()) != 0) fail(path_, errno);
  }
  void remove() const { (void)unlink(path_.c_str()); }

 private:
  fs::path path_;
  const HubFile& file_;
  Descriptor descriptor_;
  Digest digest_;
  int64_t bytes_ = 0;
};

class Fetch {
 public:
  Fetch(const FetchOptions& options, const FetchWatch& watch)
      : options_(options),
        watch_(watch),
        repository_(hub_repository(options.kind, options.name)),
        locks_(hub_cache() / ".locks" / repository_.filename()),
        client_(hub_settings(), watch.say) {}

  FetchResult run() {
    const Listing listing = list();
    FetchResult result;
    result.commit = listing.commit;
    result.files = wanted_files(listing, options_.kind, options_.wanted, options_.name);
    for (const HubFile& file : result.files) result.bytes += file.bytes;
    make_folders(repository_ / "blobs");
    require_room(result.files);
    for (const HubFile& file : result.files) receive(file, listing.commit);
    flush_to_disk(repository_ / "blobs");
    result.folder = repository_ / "snapshots" / listing.commit;
    std::set<fs::path> folders;
    for (const HubFile& file : result.files) {
      link(file, result.folder);
      folders.insert((result.folder / file.name).parent_path());
    }
    for (const fs::path& folder : folders) flush_to_disk(folder);
    if (options_.revision != listing.commit) {
      make_folders((repository_ / "refs" / options_.revision).parent_path());
      put_file(repository_ / "refs" / (".plimsoll." + std::to_string(getpid())),
               repository_ / "refs" / options_.revision, listing.commit);
    }
    result.received = received_;
    return result;
  }

 private:
  [[nodiscard]] std::string in_url() const {
    return options_.kind == HubKind::dataset ? "/datasets/" + options_.name : "/" + options_.name;
  }
  Listing list() {
    const std::string kind = options_.kind == HubKind::dataset ? "/api/datasets/" : "/api/models/";
    std::string revision = url_path(options_.revision);
    for (size_t at = 0; (at = revision.find('/', at)) != std::string::npos;) revision.replace(at, 1, "%2F");
    const std::string path = formatted("{}{}/revision/{}?blobs=true", kind, options_.name, revision);
    return read_listing(client_.text(path, options_.name, kLongestListing), client_.endpoint() + path);
  }
  [[nodiscard]] fs::path blob(const HubFile& file) const { return repository_ / "blobs" / file.digest; }
  [[nodiscard]] fs::path partial(const HubFile& file) const {
    return repository_ / "blobs" / (file.digest + ".incomplete");
  }
  [[nodiscard]] bool is_there(const HubFile& file) const {
    std::error_code unknown;
    return fs::is_regular_file(blob(file), unknown) &&
           fs::file_size(blob(file), unknown) == static_cast<uintmax_t>(file.bytes);
  }

  void require_room(const std::vector<HubFile>& files) {
    int64_t missing = 0;
    for (const HubFile& file : files) {
      if (is_there(file)) continue;
      progress_.total += file.bytes;
      std::error_code unknown;
      const uintmax_t size = fs::file_size(partial(file), unknown);
      const int64_t here = unknown ? 0 : std::min(file.bytes, static_cast<int64_t>(size));
      progress_.bytes += here;
      missing += file.bytes - here;
    }
    if (missing > 0)
      require_disk_space(repository_ / "blobs", missing, options_.name,
                         "put the cache elsewhere (HF_HUB_CACHE)");
  }

  void receive(const HubFile& file, const std::string& commit) {
    if (is_there(file)) return;
    make_folders(locks_);
    const BlobLock lock(locks_ / (file.digest + ".lock"), file.name, watch_);
    if (is_there(file)) {  // the other process has it
      progress_.bytes += file.bytes;
      return;
    }
    PartialFile into(partial(file), file);
    const bool resumed = into.bytes() > 0;
    receive_rest(file, commit, into);
    bool right = into.is_right();
    if (!right && resumed) {  // what an earlier process left may be wrong: once more from the start
      watch_.say(file.name +
                 ": what an earlier try left does not match the checksum; receiving it from the start");
      restart(into);
      receive_rest(file, commit, into);
      right = into.is_right();
    }
    if (right) return into.publish(blob(file));
    into.remove();
    throw DamagedError(formatted(
        "{}: {} does not have the checksum that the hub has listed ({}); it is removed. Fetch it again; "
        "a proxy may have changed it",
        options_.name, file.name, file.digest));
  }
  void restart(PartialFile& into) {
    progress_.bytes -= into.bytes();
    into.restart();
  }
  void receive_rest(const HubFile& file, const std::string& commit, PartialFile& into) {
    if (into.bytes() == file.bytes) return;
    client_.get({.path = formatted("{}/resolve/{}/{}", in_url(), commit, url_path(file.name)),
                 .of = options_.name,
                 .offset = [&] { return into.bytes(); },
                 .take =
                     [&](bool restarted, std::string_view piece) {
                       if (restarted) restart(into);
                       into.add(piece);
                       received_ += static_cast<int64_t>(piece.size());
                       progress_.bytes += static_cast<int64_t>(piece.size());
                       watch_.progress(progress_);
                     }});
    if (into.bytes() < file.bytes)
      throw StoppedError(formatted(
          "{}: {} ends after {} of {} bytes. What was received is kept: the same command continues from "
          "there",
          options_.name, file.name, into.bytes(), file.bytes));
  }

  // As huggingface_hub: a link into blobs; where the file system has none, another name of the same file or a
  // copy.
  void link(const HubFile& file, const fs::path& snapshot) const {
    const fs::path path = snapshot / file.name;
    make_folders(path.parent_path());
    const fs::path target = fs::relative(blob(file), path.parent_path());
    const fs::path temporary = path.parent_path() / (".plimsoll." + std::to_string(getpid()));
    (void)unlink(temporary.c_str());
    if (symlink(target.c_str(), temporary.c_str()) != 0) {
      if (errno != EPERM && errno != ENOTSUP) fail(path, errno);
      return link_atomically(blob(file), path, temporary);
    }
    if (rename(temporary.c_str(), path.c_str()) != 0) fail(path, errno);
  }

  const FetchOptions& options_;
  const FetchWatch& watch_;
  fs::path repository_, locks_;
  HubClient client_;
  FetchProgress progress_;
  int64_t received_ = 0;
};

}  // namespace

FetchResult fetch(const FetchOptions& options, const FetchWatch& watch) {
  if (!is_hub_name(options.name, true))
    throw UsageError(options.name +
                     ": is not the name of a repository on the hub, such as Qwen/Qwen2.5-0.5B");
  if (!stays_below(options.revision))
    throw UsageError(
        formatted("--revision {}: is not the name of a branch, a tag or a commit", options.revision));
  return Fetch(options, watch).run();
}

}  // namespace plimsoll::hub
