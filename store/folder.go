package store

import (
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

// SharedFolder at the end of the URL of a store in files, like
// sqlite:app.db?shared-folder, lets a new store be made in a folder that
// CheckFolder refuses.
const SharedFolder = "?shared-folder"

// CheckFolder is for drivers that are about to make a store in a folder. It
// returns ErrInvalid if every user of the machine may write to the folder and
// it has no sticky bit: anyone could then put files of their own in the place
// of the store's.
func CheckFolder(dir string) error {
	info, err := os.Stat(dir)
	if err != nil || runtime.GOOS == "windows" {
		return nil // what opens the store will tell; modes mean nothing there
	}
	if info.Mode()&0o002 == 0 || info.Mode()&fs.ModeSticky != 0 {
		return nil
	}
	return fmt.Errorf("%w: every user of this machine may write to the folder %s, and could replace what a new store keeps there; use a folder of your own, say chmod o-w %s, or accept it with SharedFolder in the driver's options, %s at the end of the URL or --shared-folder",
		ErrInvalid, dir, dir, SharedFolder)
}
