// Package powercut gives tests a disk whose power they can cut: a file system
// of its own on a loop device, which is shut down without writing its journal
// or caches, as a power failure does, and mounted again. What was not synced
// by then is gone. It needs Linux, root and mkfs.ext4.
package powercut
