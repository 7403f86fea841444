#include "darkroom/core/machine.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace darkroom
