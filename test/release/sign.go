package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"aead.dev/minisign"
	"golang.org/x/term"
)

// signer signs files with minisign's keys. Without a key it leaves them as they are.
type signer struct{ key *minisign.PrivateKey }

// readKey reads a secret key, and its password from a file or from the terminal. An empty path is no key.
func readKey(path, passwordFile string) (signer, error) {
	if path == "" {
		if passwordFile != "" {
			return signer{}, fmt.Errorf("KEY_PASSWORD_FILE=%q: allowed only with KEY, the path of a secret key of minisign", passwordFile)
		}
		return signer{}, nil
	}
	const allowed = "allowed is the path of a secret key of minisign, as minisign -G writes it"
	text, err := os.ReadFile(path)
	if err != nil {
		return signer{}, fmt.Errorf("KEY=%q: %s: %w", path, allowed, err)
	}
	var key minisign.PrivateKey
	if !minisign.IsEncrypted(text) {
		if err := key.UnmarshalText(text); err != nil {
			return signer{}, fmt.Errorf("KEY=%q: %s: %w", path, allowed, err)
		}
		return signer{&key}, nil
	}
	password, err := readPassword(path, passwordFile)
	if err != nil {
		return signer{}, err
	}
	if key, err = minisign.DecryptKey(password, text); err != nil {
		return signer{}, fmt.Errorf("KEY=%q: allowed is a key with the password that KEY_PASSWORD_FILE=%q or the terminal gives: %w",
			path, passwordFile, err)
	}
	return signer{&key}, nil
}

// readPassword returns the first line of the file, or what is typed at the terminal, which doesn't show it.
func readPassword(key, file string) (string, error) {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("KEY_PASSWORD_FILE=%q: allowed is a file whose first line is the password of KEY: %w", file, err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		return strings.TrimSuffix(line, "\r"), nil
	}
	stdin := int(os.Stdin.Fd())
	if !term.IsTerminal(stdin) {
		return "", fmt.Errorf("KEY=%q has a password, and there is no terminal to ask: set KEY_PASSWORD_FILE to a file whose first line is the password",
			key)
	}
	fmt.Fprintf(os.Stderr, "password of %s: ", key)
	password, err := term.ReadPassword(stdin)
	fmt.Fprintln(os.Stderr)
	return string(password), err
}

// sign writes a signature beside a file.
func (s signer) sign(file string) error {
	if s.key == nil {
		return nil
	}
	message, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	comment := "file:" + filepath.Base(file)
	return os.WriteFile(file+".minisig", minisign.SignWithComments(*s.key, message, comment, "verify with minisign -V"), 0o644)
}

// String says who signs, with the public key that others verify with.
func (s signer) String() string {
	if s.key == nil {
		return "NOT SIGNED: KEY is not set; it names a secret key of minisign"
	}
	return fmt.Sprintf("signed; verify with the public key %v", s.key.Public())
}
