package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// makeWork makes a directory for a run below .build, and removes those of runs that were killed. clean removes it again.
func makeWork(kind string) (dir string, clean func(), err error) {
	parent := filepath.Join(".build", kind)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", nil, err
	}
	lock, err := lockDir(parent, 0)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = lock.Close() }()
	if err := removeLeft(parent); err != nil {
		return "", nil, err
	}
	if dir, err = os.MkdirTemp(parent, ""); err != nil {
		return "", nil, err
	}
	held, err := lockDir(dir, syscall.LOCK_NB)
	if err != nil {
		return "", nil, err
	}
	return dir, func() { _ = errors.Join(os.RemoveAll(dir), held.Close()) }, nil
}

// removeLeft removes the directories whose run has ended: the kernel gave their locks back, however it ended.
func removeLeft(parent string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		dir := filepath.Join(parent, entry.Name())
		lock, err := lockDir(dir, syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EWOULDBLOCK), errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			return err
		}
		if err := errors.Join(os.RemoveAll(dir), lock.Close()); err != nil {
			return err
		}
	}
	return nil
}

// lockDir takes the lock of a directory, which lasts until the file is closed or the process ends: programs that it starts don't have it.
func lockDir(dir string, how int) (*os.File, error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|how); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), file.Close())
	}
	return file, nil
}
