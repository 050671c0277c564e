package store

import (
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

// SharedFolder, at the end of the URL of a store in local files, as in
// sqlite:app.db?shared-folder, allows creating a new store in a folder that
// CheckFolder refuses.
const SharedFolder = "?shared-folder"

// CheckFolder is for drivers that are about to create a store in a folder. It
// returns ErrInvalid if every user of the machine may write to the folder and
// it has no sticky bit: anyone could then replace the store's files.
func CheckFolder(dir string) error {
	info, err := os.Stat(dir)
	if err != nil || runtime.GOOS == "windows" {
		return nil // opening the store reports the error; modes mean nothing on Windows
	}
	if info.Mode()&0o002 == 0 || info.Mode()&fs.ModeSticky != 0 {
		return nil
	}
	return fmt.Errorf("%w: every user of this machine may write to the folder %s and could replace the files of a new store there; use a folder of your own, run chmod o-w %s, or accept it with SharedFolder in the driver's options, %s at the end of the URL or --shared-folder",
		ErrInvalid, dir, dir, SharedFolder)
}
