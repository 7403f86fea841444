#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// What a file may be to an image dataset, told by its name alone.
enum class ContainerKind {
  kTable,     ///< is_table_path, and none of the next ones.
  kTar,       ///< .tar; with the ending of a compression it is one, too, which open_table refuses by its name.
  kMds,       ///< .mds, with the ending of a compression behind it or without.
  kMdsIndex,  ///< index.json
  kMetadata,  ///< metadata.jsonl, metadata.csv: of an imagefolder, if there are pictures.
  kPicture,   ///< .jpg, .jpeg, .png, .webp; .gif and .avif, which are no row less for being refused later.
  kOther,
};
ContainerKind container_kind(std::string_view path);

/// Whether a path ends so, in whatever letter case. `ending`: in lower case.
bool has_ending(std::string_view path, std::string_view ending);

/// A picture's extension within a sample: the first of these that it has is its picture.
bool is_picture_extension(std::string_view extension);

/// Reads a small file by its path.
using ReadSmall = std::function<Result<std::string>(const std::string& path)>;

/// The inputs of the image dataset that lies in `folder`, in byte order of their paths: Parquet files, tars, MDS shards, or folders, whose
/// paths end with a slash: one for each metadata.jsonl or metadata.csv that has pictures below it, or `folder` itself for pictures alone.
/// `files`: every visible file below it. What lies beside a dataset does not count: any .json; a table of the same name as a tar or as a
/// folder of pictures, as img2dataset writes it; a compressed MDS shard beside the same one uncompressed. Where there is an index.json, its
/// shards are the dataset, and a job's own parts (part_name.h), whatever it says of them. None at all: no inputs.
/// Errors: kFailedPrecondition naming a file of each where there are two kinds; kCorruptData for an index.json that is none; kNotFound for
/// a shard that it lists and that is not there; read_small's.
Result<std::vector<FileInfo>> find_picture_inputs(const std::string& folder, const std::vector<FileInfo>& files,
                                                  const ReadSmall& read_small);

/// The same for files that were named one by one, by a pattern: a metadata file stands for its folder. Errors: kFailedPrecondition for
/// a picture, which is no input by itself.
Result<std::vector<FileInfo>> named_picture_inputs(const std::vector<FileInfo>& files);

}  // namespace darkroom
