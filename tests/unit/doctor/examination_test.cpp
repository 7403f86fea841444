#include "examination.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "darkroom/web/fetch.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using Verdict = Finding::Verdict;

const Finding& named(const std::vector<Finding>& findings, const std::string& name) {
  for (const Finding& finding : findings) {
    if (finding.name == name) {
      return finding;
    }
  }
  throw std::out_of_range("no finding " + name);
}

TEST(Doctor, tells_instruction_sets_that_are_there_and_those_that_are_not) {
  const auto findings = examine_processor("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu sse4_2 avx avx2 fma\n");
  EXPECT_EQ(named(findings, "name").text, "Some CPU @ 2 GHz");
  EXPECT_EQ(named(findings, "has").text, "sse4_2 avx fma avx2");
  EXPECT_EQ(named(findings, "lacks").text, "f16c avx512f avx512_vnni avx512_bf16 amx_bf16");
  EXPECT_EQ(named(findings, "lacks").verdict, Verdict::kGood);
  EXPECT_EQ(named(examine_processor("flags : sse4_2\n"), "lacks").verdict, Verdict::kRemark);
  EXPECT_EQ(named(examine_processor(""), "name").text, "not told by the system");
}

TEST(Doctor, tells_the_libraries_of_the_process_by_their_files) {
  const auto findings = examine_libraries(
      "7f0 r-xp 00 08:01 1 /usr/lib/libjpeg.so.62.3.0\n7f1 r-xp 00 08:01 1 /usr/lib/libjpeg.so.62.3.0\n7f2 r--p 0 0 0 [heap]\n"
      "7f3 r-xp 00 08:01 2 /opt/my libs/libcurl.so.4.8.0\n7f4 r-xp 00 08:01 2 /usr/lib/libunknown.so.1\n");
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(named(findings, "libjpeg").text, "libjpeg.so.62.3.0");
  EXPECT_EQ(named(findings, "libcurl").text, "libcurl.so.4.8.0");
}

TEST(Doctor, remarks_on_little_memory) {
  const auto findings = examine_memory("MemTotal:       16000000 kB\nMemAvailable:    1000000 kB\n", {});
  EXPECT_EQ(named(findings, "machine").text, "16.4 GB");
  EXPECT_EQ(named(findings, "available").verdict, Verdict::kRemark);
  EXPECT_EQ(findings.size(), 3u);
}

TEST(Doctor, what_a_control_group_leaves_is_all_there_is) {
  const std::string meminfo = "MemTotal:       16000000 kB\nMemAvailable:    9000000 kB\n";
  const auto small = examine_memory(meminfo, {.limit_bytes = 1'100'000'000, .available_bytes = 900'000'000});
  EXPECT_EQ(named(small, "limit of the control group").text, "1.1 GB");
  EXPECT_EQ(named(small, "available").text, "900.0 MB");
  EXPECT_EQ(named(small, "available").verdict, Verdict::kRemark);
  const auto large = examine_memory(meminfo, {.limit_bytes = 14'000'000'000, .available_bytes = 13'000'000'000});
  EXPECT_EQ(named(large, "available").text, "9.2 GB");
  EXPECT_EQ(named(large, "available").verdict, Verdict::kGood);
}

TEST(Doctor, names_the_room_of_folders) {
  const auto findings = examine_disk({"/", "/no-such-folder"});
  EXPECT_NE(named(findings, "/").text.find("free of"), std::string::npos);
  EXPECT_EQ(named(findings, "/no-such-folder").verdict, Verdict::kRemark);
}

TEST(Doctor, too_few_open_files_are_a_problem) {
  EXPECT_EQ(count_problems(examine_open_files(1024, 4096)), 0);
  EXPECT_EQ(count_problems(examine_open_files(64, 4096)), 0);  // `download` raises the soft limit itself.
  const auto bounded = examine_open_files(256, 256);
  EXPECT_EQ(count_problems(bounded), 1);
  EXPECT_EQ(bounded[0].advice.find("ulimit"), std::string::npos) << bounded[0].advice;
  EXPECT_NE(bounded[0].advice.find("upper bound"), std::string::npos) << bounded[0].advice;
}

// In a process of its own: a hard limit that was lowered stays so. Ends with 1 when fetching is refused.
[[noreturn]] void fetch_with_open_files(rlim_t limit) {
  const rlimit lowered{.rlim_cur = limit, .rlim_max = limit};
  if (setrlimit(RLIMIT_NOFILE, &lowered) != 0) {
    _exit(99);
  }
  _exit(Fetcher::create({}).is_ok() ? 0 : 1);
}

TEST(DoctorDeathTest, calls_a_limit_of_open_files_too_low_exactly_where_download_refuses_it) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto needed = static_cast<rlim_t>(descriptors_needed(FetchOptions().num_concurrent));
  for (const rlim_t limit : {needed - 1, needed}) {
    const bool is_problem = count_problems(examine_open_files(limit, limit)) > 0;
    EXPECT_EQ(is_problem, limit < needed) << limit;
    EXPECT_EXIT(fetch_with_open_files(limit), testing::ExitedWithCode(is_problem ? 1 : 0), "") << limit;
  }
}

TEST(Doctor, looks_at_local_stores) {
  const TemporaryFolder folder;
  const auto found =
      examine_stores({folder.path(), folder.path() + "/new", folder.path() + "/no/such/place", std::string(10'000, 'a')}, {}, {});
  ASSERT_TRUE(found.is_ok());
  EXPECT_EQ((*found)[0].text, "can be read and written");
  EXPECT_EQ((*found)[1].text, "is not there yet, and can be made");
  EXPECT_EQ((*found)[2].text, "is not there yet, and can be made") << "a job makes the folders between";
  EXPECT_EQ((*found)[3].verdict, Verdict::kProblem);
}

TEST(Doctor, stores_that_are_refused_are_problems) {
  const auto found = examine_stores({"gs://bucket/path", "http://127.0.0.1:1/?token=hidden"}, {}, {});
  ASSERT_TRUE(found.is_ok());
  EXPECT_EQ(count_problems(*found), 2);
  EXPECT_NE((*found)[0].advice.find("s3://"), std::string::npos) << (*found)[0].advice;
  EXPECT_NE((*found)[1].text.find("blocked_host"), std::string::npos) << (*found)[1].text;
  EXPECT_EQ((*found)[1].name, "http://127.0.0.1:1/?...");
}

TEST(Doctor, remarks_that_no_gpu_is_used_only_where_there_is_something_to_do) {
  const Finding idle = examine_missing_gpu("no plugin", "make install CUDA=1");
  EXPECT_EQ(idle.verdict, Verdict::kRemark);
  EXPECT_NE(findings_text({idle}).find("! none  no plugin\n        make install CUDA=1"), std::string::npos) << findings_text({idle});
  EXPECT_EQ(examine_missing_gpu("no plugin", "").verdict, Verdict::kGood);
}

TEST(Doctor, findings_for_people_and_for_programs) {
  const std::vector<Finding> findings = {{"disk", ".", "1 GB free", Verdict::kRemark, "free some"},
                                         {"stores", "x", "cannot be read", Verdict::kProblem, "change its permissions"}};
  const std::string text = findings_text(findings);
  EXPECT_NE(text.find("! .  1 GB free"), std::string::npos) << text;
  EXPECT_NE(text.find("X x  cannot be read"), std::string::npos) << text;
  const auto json = findings_json(findings);
  EXPECT_EQ(json["disk"]["."], "1 GB free");
  EXPECT_EQ(json["problems"].size(), 1u);
}

}  // namespace
}  // namespace darkroom
