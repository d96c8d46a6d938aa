package main

import (
	"bufio"
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// component is a Go module or a Debian package that an artefact is made of.
type component struct {
	name, version, purl string
	supplier            common.Supplier
	// digest is its hash by the name of the algorithm in in-toto's DigestSet; the standard library has none.
	digest map[string]string
}

// components returns what the programs and the root file systems that match the patterns are made of, each once, by purl.
func components(programs, roots string) (map[string]component, error) {
	all := map[string]component{}
	files, err := filepath.Glob(programs)
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no programs in %s: %w", programs, err)
	}
	for _, file := range files {
		if err := addModules(all, file); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	controls, err := filepath.Glob(filepath.Join(roots, "var/lib/dpkg/status.d/*"))
	if err != nil {
		return nil, err
	}
	for _, file := range controls {
		if err := addDebian(all, file); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return all, nil
}

// addModules adds the Go modules that a program says it is built from, its own among them.
func addModules(all map[string]component, program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	add := func(name, version, sum string) error {
		c := component{name: name, version: version, supplier: common.Supplier{Supplier: "NOASSERTION"}}
		c.purl = "pkg:golang/" + name
		if version != "" {
			c.purl += "@" + url.QueryEscape(version)
		}
		if sum != "" {
			hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:"))
			if err != nil {
				return fmt.Errorf("hash %q of %s: %w", sum, name, err)
			}
			c.digest = map[string]string{"dirHash": hex.EncodeToString(hash)}
		}
		all[c.purl] = c
		return nil
	}
	if err := add("stdlib", strings.TrimPrefix(info.GoVersion, "go"), ""); err != nil {
		return err
	}
	if err := add(info.Main.Path, "", ""); err != nil { // of the document's version
		return err
	}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		if err := add(module.Path, module.Version, module.Sum); err != nil {
			return err
		}
	}
	return nil
}

// addDebian adds the package whose control file the image has. Its hash is the one that image/packages.sha256 pins.
func addDebian(all map[string]component, control string) error {
	text, err := os.ReadFile(control)
	if err != nil {
		return err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(line, ": "); found {
			fields[key] = strings.TrimSpace(value)
		}
	}
	name, version, architecture := fields["Package"], fields["Version"], fields["Architecture"]
	file := fmt.Sprintf("%s_%s_%s.deb", name, strings.ReplaceAll(version, ":", "%3a"), architecture)
	hash, err := pinned(filepath.Join("image", "packages.sha256"), file)
	if err != nil {
		return err
	}
	c := component{
		name: name, version: version, digest: map[string]string{"sha256": hash},
		purl:     fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=bookworm", url.QueryEscape(name), url.QueryEscape(version), architecture),
		supplier: common.Supplier{Supplier: "Debian", SupplierType: "Organization"},
	}
	all[c.purl] = c
	return nil
}

// pinned returns the hash of a file by a list in the form of sha256sum.
func pinned(list, file string) (string, error) {
	text, err := os.ReadFile(list)
	if err != nil {
		return "", err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if hash, name, _ := strings.Cut(lines.Text(), "  "); name == file {
			return hash, nil
		}
	}
	return "", fmt.Errorf("%s has no line for %s", list, file)
}

// describe writes what an artefact is made of beside it, as SPDX 2.3. The same artefact has the same list.
func (s source) describe(artefact, out string, purpose string, of map[string]component) error {
	hash, err := hashFile(artefact)
	if err != nil {
		return err
	}
	const root = common.ElementID("artefact")
	name := path.Base(artefact)
	document := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name,
		DocumentNamespace: repository + "/sbom/" + name + "-" + hash,
		CreationInfo: &spdx.CreationInfo{
			Created: s.time.UTC().Format("2006-01-02T15:04:05Z"), Creators: []common.Creator{{CreatorType: "Tool", Creator: "topodisk-release"}},
		},
		Packages: []*spdx.Package{{
			PackageSPDXIdentifier: root, PackageName: name, PackageVersion: s.version, PackageFileName: name, PrimaryPackagePurpose: purpose,
			PackageSupplier: &common.Supplier{Supplier: "topodisk", SupplierType: "Organization"}, PackageDownloadLocation: "NOASSERTION",
			PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: hash}},
		}},
		Relationships: []*spdx.Relationship{relation("DOCUMENT", "DESCRIBES", root)},
	}
	for n, purl := range slices.Sorted(maps.Keys(of)) {
		id, c := common.ElementID(fmt.Sprintf("component-%d", n+1)), of[purl]
		p := &spdx.Package{
			PackageSPDXIdentifier: id, PackageName: c.name, PackageVersion: c.version,
			PackageSupplier: &c.supplier, PackageDownloadLocation: "NOASSERTION",
			PackageExternalReferences: []*spdx.PackageExternalReference{
				{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: purl},
			},
		}
		if hash, ok := c.digest["sha256"]; ok {
			p.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: hash}}
		}
		if p.PackageVersion == "" {
			p.PackageVersion = s.version
		}
		document.Packages = append(document.Packages, p)
		document.Relationships = append(document.Relationships, relation(root, "CONTAINS", id))
	}
	var text bytes.Buffer
	if err := spdxjson.Write(document, &text, spdxjson.Indent("  "), spdxjson.EscapeHTML(false)); err != nil {
		return err
	}
	return os.WriteFile(out, text.Bytes(), 0o644)
}

func relation(from common.ElementID, kind string, to common.ElementID) *spdx.Relationship {
	return &spdx.Relationship{RefA: common.DocElementID{ElementRefID: from}, Relationship: kind, RefB: common.DocElementID{ElementRefID: to}}
}
