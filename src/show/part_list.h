#pragma once

#include "damage_log.h"
#include "darkroom/files/file_system.h"
#include "table_parts.h"

namespace darkroom {

/// Whether the parts of our jobs are all there, folder by folder: each that the folder's _summary.json lists, or another of its item, with
/// the size and content hash that it had; one part an item; and one for every item up to the last one. Where there is a pinned list, a last
/// part that the summary does not list (or no summary), so that its run has not ended well, and --limit did not cut it, also one for every
/// item of the list. What is missing, different or there twice goes to `damage`. Errors: those of reading the summary.
Status check_part_list(FileSystem& files, const TableParts& parts, DamageLog& damage);

}  // namespace darkroom
