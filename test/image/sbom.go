package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sbomPackage is one package of the list, in the form of SPDX 2.3.
type sbomPackage struct {
	ID           string            `json:"SPDXID"`
	Name         string            `json:"name"`
	Version      string            `json:"versionInfo"`
	Location     string            `json:"downloadLocation"`
	Analyzed     bool              `json:"filesAnalyzed"`
	ExternalRefs []sbomExternalRef `json:"externalRefs"`
}

type sbomExternalRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type sbomRelation struct {
	From string `json:"spdxElementId"`
	To   string `json:"relatedSpdxElement"`
	Type string `json:"relationshipType"`
}

// bill lists what the image is made of: the Debian packages that its programs of file systems are from, and the Go modules
// that its own programs say they are built from. The same image has the same list.
func bill(version, digest, packages, work string) ([]byte, error) {
	urls := map[string]string{} // package URL to version
	text, err := os.ReadFile(packages)
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Fields(string(text)) {
		name, version, _ := strings.Cut(line, "=")
		urls["pkg:deb/debian/"+name+"@"+strings.ReplaceAll(version, ":", "%3A")+"?distro=bookworm"] = version
	}
	programs, err := filepath.Glob(filepath.Join(work, "*", "out", "*"))
	if err != nil || len(programs) == 0 {
		return nil, fmt.Errorf("no programs in %s: %w", work, err)
	}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", program, err)
		}
		urls["pkg:golang/stdlib@"+strings.TrimPrefix(info.GoVersion, "go")] = strings.TrimPrefix(info.GoVersion, "go")
		for _, module := range info.Deps {
			if module.Replace != nil {
				module = module.Replace
			}
			urls["pkg:golang/"+module.Path+"@"+module.Version] = module.Version
		}
	}
	const document, image = "SPDXRef-DOCUMENT", "SPDXRef-image"
	all := []sbomPackage{{ID: image, Name: "topodisk", Version: version, Location: "NOASSERTION", ExternalRefs: []sbomExternalRef{}}}
	relations := []sbomRelation{{document, image, "DESCRIBES"}}
	for n, url := range slices.Sorted(maps.Keys(urls)) {
		id := fmt.Sprintf("SPDXRef-package-%d", n+1)
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(url, "pkg:golang/"), "pkg:deb/debian/"), "@")
		all = append(all, sbomPackage{
			ID: id, Name: name, Version: urls[url], Location: "NOASSERTION", ExternalRefs: []sbomExternalRef{{"PACKAGE-MANAGER", "purl", url}},
		})
		relations = append(relations, sbomRelation{image, id, "CONTAINS"})
	}
	made, err := json.MarshalIndent(map[string]any{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": document, "name": "topodisk-" + version,
		"documentNamespace": "https://github.com/topodisk/topodisk/sbom/" + strings.ReplaceAll(digest, ":", "-"),
		"creationInfo":      map[string]any{"created": "1970-01-01T00:00:00Z", "creators": []string{"Tool: topodisk-make-image"}},
		"packages":          all, "relationships": relations,
	}, "", "  ")
	return append(made, '\n'), err
}
