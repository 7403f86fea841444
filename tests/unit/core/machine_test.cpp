#include "darkroom/core/machine.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/temporary_folder.h"

namespace darkroom {
namespace {

TEST(Machine, has_the_name_that_the_kernel_says) {
  std::ifstream file("/proc/sys/kernel/hostname");
  std::string name;
  std::getline(file, name);
  EXPECT_EQ(host_name(), name);
}

TEST(Machine, the_processor_is_named_as_the_system_names_it) {
  EXPECT_EQ(processor_name("processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9R45 \nflags : fpu\nprocessor : 1\nmodel name : B\n"),
            "AMD EPYC 9R45");
  EXPECT_EQ(processor_name("model name:X"), "X") << "the last line without its end";
  for (const char* nameless : {"", "\n", "processor : 0\nBogoMIPS : 50\n", "model name\t:\n", "model name\t: \t \n", "model name"}) {
    EXPECT_EQ(processor_name(nameless), "") << nameless;
  }
}

TEST(Machine, this_machine_has_a_processor_cores_and_memory) {
  const MachineFacts facts = read_machine_facts();
  EXPECT_FALSE(facts.processor.empty());
  EXPECT_GE(facts.num_cores, 1);
  EXPECT_GE(facts.memory_bytes, int64_t{1} << 24);
}

TEST(Machine, the_memory_of_a_container_is_its_limit) {
  const TemporaryFolder group;
  const auto with = [&](const char* limit) {
    std::ofstream(group.path("memory.max")) << limit;
    return usable_memory_bytes(group.path());
  };
  const int64_t machine_bytes = read_machine_facts().memory_bytes;
  EXPECT_EQ(usable_memory_bytes(group.path("absent")), machine_bytes);
  EXPECT_EQ(with("max\n"), machine_bytes);
  EXPECT_EQ(with("9223372036854771712\n"), machine_bytes);
  EXPECT_EQ(with("0\n"), machine_bytes);
  EXPECT_EQ(with("1048576\n"), 1048576);
}

class ControlGroups : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path(folder_.path(name));
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  ControlGroupMemory memory() const { return control_group_memory(folder_.path("groups"), folder_.path("membership")); }

 private:
  TemporaryFolder folder_;
};

TEST_F(ControlGroups, without_any_there_is_no_limit) {
  EXPECT_EQ(memory().limit_bytes, 0);
  write("membership", "0::/a/b\n");
  write("groups/a/b/memory.max", "max\n");
  EXPECT_EQ(memory().limit_bytes, 0);
  EXPECT_EQ(memory().available_bytes, 0);
}

// As `systemd-run -p MemoryMax=...` makes them: the root, which alone has no limit, is not the process's own.
TEST_F(ControlGroups, the_limit_of_the_own_group_holds) {
  write("membership", "4:memory:/\n0::/system.slice/run-1.scope\n");
  write("groups/system.slice/memory.max", "max\n");
  write("groups/system.slice/run-1.scope/memory.max", "5000000\n");
  write("groups/system.slice/other.scope/memory.max", "1000\n");
  EXPECT_EQ(memory().limit_bytes, 5000000);
  EXPECT_EQ(memory().available_bytes, 5000000);
}

TEST_F(ControlGroups, the_least_of_those_above_holds_too_and_what_all_of_them_hold_counts) {
  write("membership", "0::/a/b\n");
  write("groups/a/b/memory.max", "5000000\n");
  write("groups/a/b/memory.current", "100\n");
  write("groups/a/memory.max", "4000000\n");
  write("groups/a/memory.current", "3000000\n");
  write("groups/a/memory.stat", "anon 7\nactive_file 8\ninactive_file 1000000\n");
  EXPECT_EQ(memory().limit_bytes, 4000000);
  EXPECT_EQ(memory().available_bytes, 2000000);
  write("groups/a/memory.current", "9000000\n");
  EXPECT_EQ(memory().available_bytes, 0);
}

TEST_F(ControlGroups, a_container_sees_its_own_group_as_the_root) {
  write("membership", "0::/\n");
  write("groups/memory.max", "3000000\n");
  EXPECT_EQ(memory().limit_bytes, 3000000);
}

TEST_F(ControlGroups, version_1_is_read_as_well) {
  write("membership", "9:name=systemd:/x\n4:memory:/docker/1234\n0::/\n");
  write("groups/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("groups/memory/docker/1234/memory.limit_in_bytes", "3000000\n");
  write("groups/memory/docker/1234/memory.usage_in_bytes", "2000000\n");
  write("groups/memory/docker/1234/memory.stat", "inactive_file 1\ntotal_inactive_file 500000\n");
  EXPECT_EQ(memory().limit_bytes, 3000000);
  EXPECT_EQ(memory().available_bytes, 1500000);
}

}  // namespace
}  // namespace darkroom
