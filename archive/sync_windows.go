package archive

import "syscall"

// fullCodes are the errors of a full disk.
var fullCodes = []error{
	syscall.Errno(0x70), // ERROR_DISK_FULL
	syscall.Errno(0x27), // ERROR_HANDLE_DISK_FULL
}

// syncFolder does nothing: Windows has no such call, and logs changes of folders
// itself.
func syncFolder(string) error { return nil }
