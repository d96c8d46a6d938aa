package main

import "regexp"

var suiteImage = regexp.MustCompile(`configs\[(\w+)\] += Config\{list\.(\w+), "([^"]+)", "([^"]+)"\}`)

// suiteRegistries are those that the source names; it has others that no test of storage needs.
var suiteRegistries = map[string]string{"PromoterE2eRegistry": "registry.k8s.io/e2e-test-images/", "GcRegistry": "registry.k8s.io/"}

// readSuiteImages returns the tags of the images that the tests' source names, by the names that it has for them.
func readSuiteImages(source []byte) map[string]string {
	images := map[string]string{}
	for _, m := range suiteImage.FindAllSubmatch(source, -1) {
		if registry, ok := suiteRegistries[string(m[2])]; ok {
			images[string(m[1])] = registry + string(m[3]) + ":" + string(m[4])
		}
	}
	return images
}
