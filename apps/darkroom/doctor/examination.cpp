#include "examination.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "darkroom/files/paths.h"
#include "darkroom/stream/memory_budget.h"
#include "darkroom/web/fetch.h"

namespace darkroom {
namespace {

using Verdict = Finding::Verdict;

// "key   : value" lines; the value of the first line with that key.
std::string value_of(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key) || line.find_first_not_of(" \t", key.size()) != colon) {
      continue;
    }
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

double kibibytes_of(const std::string& meminfo, const std::string& key) {
  double value = 0;
  std::istringstream(value_of(meminfo, key)) >> value;
  return value * 1024;
}

}  // namespace

std::string readable_bytes(double num_bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (num_bytes >= 1000 && unit + 1 < kUnits.size()) {
    num_bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", num_bytes) : fmt::format("{:.1f} {}", num_bytes, kUnits[unit]);
}

std::string slurp(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<Finding> examine_processor(const std::string& cpuinfo) {
  const std::string section = "processor";
  std::vector<Finding> findings;
  const std::string name = value_of(cpuinfo, "model name");
  findings.push_back({section, "name", name.empty() ? "not told by the system" : name});
  findings.push_back({section, "cores", fmt::format("{}", num_processors())});
  std::istringstream words(value_of(cpuinfo, "flags"));
  const std::set<std::string> flags{std::istream_iterator<std::string>(words), {}};
  std::vector<std::string> present;
  std::vector<std::string> absent;
  for (const char* flag : {"sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16"}) {
    (flags.contains(flag) ? present : absent).emplace_back(flag);
  }
  findings.push_back(
      {section, "has", present.empty() ? "none of the instruction sets asked for" : fmt::format("{}", fmt::join(present, " "))});
  findings.push_back({section, "lacks", absent.empty() ? "nothing asked for" : fmt::format("{}", fmt::join(absent, " "))});
  if (!flags.empty() && !flags.contains("avx2")) {
    findings.back().verdict = Verdict::kRemark;
    findings.back().advice = "without avx2 everything works, but training and decoding are several times slower";
  }
  return findings;
}

std::vector<Finding> examine_libraries(const std::string& maps) {
  std::map<std::string, std::string> libraries;  // Name without version -> file name.
  std::istringstream lines(maps);
  for (std::string line; std::getline(lines, line);) {
    const size_t slash = line.find('/');
    const std::string file = slash == std::string::npos ? "" : file_name(line.substr(slash));
    const size_t suffix = file.find(".so");
    if (file.starts_with("lib") && suffix != std::string::npos) {
      libraries.emplace(file.substr(0, suffix), file);
    }
  }
  std::vector<Finding> findings;
  for (const char* name : {"libtorch_cpu", "libc10", "libarrow", "libparquet", "libcurl", "libcrypto", "libcares", "libidn2", "libjpeg",
                           "libpng16", "libwebp", "libhwy", "libfmt", "libstdc++", "libc"}) {
    if (const auto found = libraries.find(name); found != libraries.end()) {
      findings.push_back({"libraries", name, found->second});
    }
  }
  return findings;
}

Finding examine_missing_gpu(const std::string& reason, const std::string& advice) {
  return {"gpu", "none", reason, advice.empty() ? Verdict::kGood : Verdict::kRemark, advice};
}

std::vector<Finding> examine_memory(const std::string& meminfo, const ControlGroupMemory& group) {
  constexpr double kLeast = 2e9;
  const bool is_limited = group.limit_bytes > 0;
  const double total = kibibytes_of(meminfo, "MemTotal");
  const double of_the_machine = kibibytes_of(meminfo, "MemAvailable");
  const double available = is_limited ? std::min(of_the_machine, static_cast<double>(group.available_bytes)) : of_the_machine;
  std::vector<Finding> findings = {{"memory", "machine", readable_bytes(total)}, {"memory", "available", readable_bytes(available)}};
  if (available < kLeast) {
    findings.back().verdict = Verdict::kRemark;
    findings.back().advice = "less than 2 GB: lower --memory and the numbers of workers, or end other programs";
  }
  if (is_limited) {
    findings.push_back({"memory", "limit of the control group", readable_bytes(static_cast<double>(group.limit_bytes))});
  }
  findings.push_back({"memory", "--memory auto", readable_bytes(static_cast<double>(default_memory_budget_bytes()))});
  return findings;
}

std::vector<Finding> examine_disk(const std::vector<std::string>& folders) {
  constexpr double kLeast = 2e9;
  std::vector<Finding> findings;
  for (const std::string& folder : folders) {
    struct statvfs room {};
    if (statvfs(folder.c_str(), &room) != 0) {
      findings.push_back(
          {"disk", folder, "cannot be looked at", Verdict::kRemark, "make the folder, or its permissions, as they should be"});
      continue;
    }
    const double unit = static_cast<double>(room.f_frsize);
    const double available = unit * static_cast<double>(room.f_bavail);
    Finding finding{"disk", folder,
                    fmt::format("{} free of {}", readable_bytes(available), readable_bytes(unit * static_cast<double>(room.f_blocks)))};
    if ((room.f_flag & ST_RDONLY) != 0) {
      finding.text += ", read-only";
    }
    if (available < kLeast) {
      finding.verdict = Verdict::kRemark;
      finding.advice = "less than 2 GB: free some space, or write elsewhere";
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

std::vector<Finding> examine_open_files(uint64_t soft_limit, uint64_t hard_limit) {
  const auto needed = static_cast<uint64_t>(descriptors_needed(FetchOptions().num_concurrent));
  Finding finding{"open files", "limit", fmt::format("{} (at most {})", soft_limit, hard_limit)};
  if (hard_limit < needed) {  // The soft one is raised by whoever needs more.
    finding.verdict = Verdict::kProblem;
    finding.advice = fmt::format(
        "`download` needs {} by default: have the upper bound raised (/etc/security/limits.conf), or lower --concurrency", needed);
  }
  return {finding};
}

int count_problems(const std::vector<Finding>& findings) {
  return static_cast<int>(
      std::count_if(findings.begin(), findings.end(), [](const Finding& finding) { return finding.verdict == Verdict::kProblem; }));
}

std::string findings_text(const std::vector<Finding>& findings) {
  size_t width = 0;
  for (const Finding& finding : findings) {
    width = std::max(width, finding.name.size());
  }
  std::string text;
  std::string section;
  for (const Finding& finding : findings) {
    if (finding.section != section) {
      section = finding.section;
      text += fmt::format("{}{}\n", text.empty() ? "" : "\n", section);
    }
    const char* mark = finding.verdict == Verdict::kGood ? "  " : finding.verdict == Verdict::kRemark ? "! " : "X ";
    text += fmt::format("{}{:<{}}  {}\n", mark, finding.name, width, finding.text);
    if (!finding.advice.empty()) {
      text += fmt::format("  {:<{}}  {}\n", "", width, finding.advice);
    }
  }
  return text;
}

nlohmann::json findings_json(const std::vector<Finding>& findings) {
  nlohmann::json json = {{"problems", nlohmann::json::array()}};
  for (const Finding& finding : findings) {
    json[finding.section][finding.name] = finding.text;
    if (finding.verdict == Verdict::kProblem) {
      json["problems"].push_back(fmt::format("{}: {}: {}; {}", finding.section, finding.name, finding.text, finding.advice));
    }
  }
  return json;
}

}  // namespace darkroom
