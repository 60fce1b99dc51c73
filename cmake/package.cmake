# cmake --install, and the Debian package (cpack).

install(TARGETS bankmld RUNTIME DESTINATION bin)
install(FILES docs/bankmld.1 DESTINATION share/man/man1)
install(FILES README.md CHANGELOG.md docs/service.md docs/grafana-dashboard.json DESTINATION share/doc/bankmld)
install(FILES LICENSE DESTINATION share/doc/bankmld RENAME copyright)
install(FILES systemd/bankmld.sysusers DESTINATION lib/sysusers.d RENAME bankmld.conf)

# The unit names the daemon and the settings that are installed with it. Settings that are there already stay.
install(CODE "set(source \"${PROJECT_SOURCE_DIR}/systemd\")\nset(scratch \"${PROJECT_BINARY_DIR}/systemd\")")
install(CODE [[
  if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    set(etc /etc)
  else()
    set(etc "${CMAKE_INSTALL_PREFIX}/etc")
  endif()
  file(READ "${source}/bankmld.service" unit)
  string(REPLACE /usr/bin "${CMAKE_INSTALL_PREFIX}/bin" unit "${unit}")
  string(REPLACE /etc/bankmld "${etc}/bankmld" unit "${unit}")
  file(WRITE "${scratch}/bankmld.service" "${unit}")
  file(INSTALL "${scratch}/bankmld.service" "${source}/bankmld.socket"
    DESTINATION "${CMAKE_INSTALL_PREFIX}/lib/systemd/system")
  if(NOT EXISTS "$ENV{DESTDIR}${etc}/bankmld/bankmld.env")
    file(INSTALL "${source}/bankmld.env" DESTINATION "${etc}/bankmld")
  endif()
]])

set(CPACK_GENERATOR DEB)
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_NAME bankmld)
set(CPACK_PACKAGE_CONTACT "bankmld developers <bankmld@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "LLM inference daemon with a prompt cache")
set(CPACK_PACKAGE_DESCRIPTION "Serves one GGUF model over llama-server's HTTP interface. Conversations take turns in a slot,
and each finds its state again instead of paying for its whole history.")
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
  WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS systemd)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(deb ${PROJECT_SOURCE_DIR}/cmake/deb)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${deb}/conffiles ${deb}/postinst ${deb}/prerm ${deb}/postrm)
include(CPack)
