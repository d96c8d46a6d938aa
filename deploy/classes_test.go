// Package deploy_test checks what users apply against the code that will read it.
package deploy_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/topodisk/topodisk/diskdriver/params"
)

// Every StorageClass that the repository hands out must pass the driver's
// strict reading of parameters: a user's first claim must not fail on ours.
func TestDriverTakesEveryStorageClassWithoutAWarning(t *testing.T) {
	seen := 0
	for _, pattern := range []string{"*.yaml", "examples/*.yaml", "../test/chart/testdata/rendered/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			for _, class := range classes(t, file) {
				seen++
				// csi-provisioner reads these two and passes them on in another form.
				delete(class.Parameters, "topodisk.io/strict-topology")
				delete(class.Parameters, "csi.storage.k8s.io/fstype")
				parameters, err := params.Parse(class.Parameters, nil, params.Refuse)
				if err != nil || len(parameters.Warnings) > 0 {
					t.Errorf("%s: StorageClass %s: error %v, warnings %q", file, class.Name, err, parameters.Warnings)
				}
			}
		}
	}
	if seen < 4 {
		t.Errorf("only %d StorageClasses were found", seen)
	}
}

func classes(t *testing.T, file string) []storagev1.StorageClass {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []storagev1.StorageClass
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var class storagev1.StorageClass
		switch err := decoder.Decode(&class); {
		case errors.Is(err, io.EOF):
			return found
		case err != nil:
			t.Fatalf("%s: %v", file, err)
		case class.Kind == "StorageClass":
			found = append(found, class)
		}
	}
}
