#include "fleet/queue/torch_settings.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <fstream>

namespace plimsoll::queue {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class TorchSettingsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "torch-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    install("venv", "2.4.1+cu121");
    std::ofstream(folder_ / "venv/pyvenv.cfg");
  }
  void TearDown() override { fs::remove_all(folder_); }

  void install(const std::string& prefix, const std::string& version,
               const std::string& packages = "lib/python3.11/site-packages") {
    fs::create_directories(folder_ / prefix / "bin");
    std::ofstream(folder_ / prefix / "bin/python") << "";
    chmod((folder_ / prefix / "bin/python").c_str(), 0700);
    fs::create_directories(folder_ / prefix / packages / "torch");
    std::ofstream(folder_ / prefix / packages / "torch/version.py")
        << "__all__ = ['__version__', 'debug']\n__version__ = '" << version << "'\ndebug = False\n";
  }
  [[nodiscard]] std::optional<TorchVersion> found(const std::string& program,
                                                  const std::string& home = "") const {
    return find_torch(program, folder_, (folder_ / "none").string() + ":" + (folder_ / "venv/bin").string(),
                      home);
  }
  fs::path folder_;
};

TEST_F(TorchSettingsTest, TheVersionIsThatOfTheProgramsEnvironment) {
  const TorchVersion torch{2, 4};
  EXPECT_EQ(found("python"), torch) << "by PATH";
  EXPECT_EQ(found("venv/bin/python"), torch);
  EXPECT_EQ(found((folder_ / "venv/bin/torchrun").string()), torch);
  EXPECT_EQ(found("bash"), std::nullopt);
  EXPECT_EQ(found("./train.sh"), std::nullopt);
}

TEST_F(TorchSettingsTest, TheOldestCountsWhereSeveralMayBeMeant) {
  install("usr", "2.6.0", "lib/python3/dist-packages");
  install("usr", "2.3.0", "local/lib/python3.12/dist-packages");
  install("home/.local", "1.13.1");
  EXPECT_EQ(found("usr/bin/python"), (TorchVersion{2, 3}));
  EXPECT_EQ(found("usr/bin/python", (folder_ / "home").string()), (TorchVersion{1, 13}));
  EXPECT_EQ(found("python", (folder_ / "home").string()), (TorchVersion{2, 4})) << "a venv has its own alone";
}

TEST_F(TorchSettingsTest, AreThoseThatTheVersionKnowsUnlessSomebodyHasSaidSome) {
  install("old", "2.0.1");
  install("odd", "");
  install("new", "2.13.0");
  const auto settings = [this](const char* program, std::vector<std::string> environment = {}) {
    return allocator_settings({program, "train.py"}, environment, folder_);
  };
  EXPECT_THAT(settings("venv/bin/python"), ElementsAre("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"));
  EXPECT_THAT(settings("new/bin/python"), ElementsAre("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"));
  EXPECT_THAT(settings("old/bin/python"), IsEmpty());
  EXPECT_THAT(settings("odd/bin/python"), IsEmpty());
  EXPECT_THAT(settings("sh"), IsEmpty());
  EXPECT_THAT(settings("venv/bin/python", {"PYTORCH_ALLOC_CONF=backend:cudaMallocAsync"}), IsEmpty());
  EXPECT_THAT(settings("venv/bin/python", {"PYTORCH_CUDA_ALLOC_CONF="}), IsEmpty());
}

TEST_F(TorchSettingsTest, OfAShellScriptTheProgramsCountThatItStarts) {
  install("old", "2.0.1");
  const auto settings = [this](const std::vector<std::string>& words) {
    return allocator_settings(words, {"PATH=" + (folder_ / "venv/bin").string()}, folder_);
  };
  const auto script = [this](const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return name;
  };
  const auto set = ElementsAre("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
  EXPECT_THAT(settings({"bash", "-lc", "cd x && CUDA_LAUNCH_BLOCKING=0 python train.py"}), set);
  EXPECT_THAT(
      settings({"bash",
                script("a.sh", "set -e\nsource venv/bin/activate\ntorchrun --nproc_per_node 2 train.py\n")}),
      set);
  EXPECT_THAT(settings({"./" + script("b.sh", "#!/usr/bin/env bash\nvenv/bin/python train.py\n")}), set);
  EXPECT_THAT(settings({"./" + script("c.sh", "venv/bin/python train.py\n")}), IsEmpty())
      << "whose script it is nobody says";
  EXPECT_THAT(settings({"sh", script("d.sh", "venv/bin/python a.py\nold/bin/python b.py\n")}), IsEmpty())
      << "the oldest counts";
  EXPECT_THAT(settings({"sh", script("e.sh", "# venv/bin/python train.py\necho pythonic\n")}), IsEmpty());
  EXPECT_THAT(
      settings({"sh", script("f.sh", "export PYTORCH_CUDA_ALLOC_CONF=backend:native\npython train.py\n")}),
      IsEmpty());
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const char* not_a_file : {"pipe", ".", "nothing"})
    EXPECT_THAT(settings({"sh", not_a_file}), IsEmpty()) << not_a_file;
}

}  // namespace
}  // namespace plimsoll::queue
