// Package foreign has clients that are not topodisk's judge ecs-simulator and disk-driver, as they are shipped and with
// their default flags: csi-test's own program csi-sanity, and both generations of Alibaba Cloud's SDKs: the npm packages
// @alicloud/pop-core and @alicloud/ecs20140526, and for Go alibaba-cloud-sdk-go (gosdk) and darabonba-openapi (gosdk2, a module
// of its own). Its tests have the build tag foreign; `make test-foreign` runs them.
package foreign
