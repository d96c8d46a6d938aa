package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
)

// addChart packages the chart as this version, as helm package does but for the times of the files.
func (r *release) addChart(context.Context) error {
	stage("the chart, manifests and notes")
	chart, err := loader.Load(filepath.Join("charts", "topodisk"))
	if err != nil {
		return err
	}
	chart.Metadata.Version, chart.Metadata.AppVersion = r.version, r.version
	dir := filepath.Join(r.work, "chart")
	if err := chartutil.SaveDir(chart, dir); err != nil {
		return err
	}
	return writeArchive(filepath.Join(r.dist, chart.Name()+"-"+r.version+".tgz"), dir, r.time)
}

// manifests are the chart as plain YAML, made by make chart-update.
const manifests = "deploy/topodisk.yaml"

var (
	manifestImage   = regexp.MustCompile(`(image: ` + regexp.QuoteMeta(imageName) + `):\S+`)
	manifestVersion = regexp.MustCompile(`(app\.kubernetes\.io/version): "[^"]*"`)
)

// addManifests writes the manifests with this version's image and labels.
func (r *release) addManifests(context.Context) error {
	text, err := os.ReadFile(manifests)
	if err != nil {
		return err
	}
	if !manifestImage.Match(text) || !manifestVersion.Match(text) {
		return fmt.Errorf("%s names no image %s, or no app.kubernetes.io/version", manifests, imageName)
	}
	text = manifestImage.ReplaceAll(text, []byte("${1}:"+r.version))
	text = manifestVersion.ReplaceAll(text, []byte(`${1}: "`+r.version+`"`))
	return os.WriteFile(filepath.Join(r.dist, filepath.Base(manifests)), text, 0o644)
}
