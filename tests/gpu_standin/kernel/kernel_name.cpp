#include "kernel/kernel_name.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

// Kernels are often local to their file, where dladdr finds no name: the symbol table of the program's own
// file does.

namespace standin {
namespace {

template <class T>
std::vector<T> read_table(std::ifstream& file, std::uint64_t offset, std::uint64_t count) {
  std::vector<T> table(count);
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(table.data()), static_cast<std::streamsize>(count * sizeof(T)));
  return file ? table : std::vector<T>();
}

using Names = std::map<std::uintptr_t, std::string>;  // by address in the file

Names read_names(const char* path) {
  Names names;
  std::ifstream file(path, std::ios::binary);
  const auto header = read_table<ElfW(Ehdr)>(file, 0, 1);
  if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0) {
    return names;
  }
  const auto sections = read_table<ElfW(Shdr)>(file, header[0].e_shoff, header[0].e_shnum);
  for (const auto& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) {
      continue;
    }
    const auto symbols = read_table<ElfW(Sym)>(file, section.sh_offset, section.sh_size / sizeof(ElfW(Sym)));
    auto text =
        read_table<char>(file, sections[section.sh_link].sh_offset, sections[section.sh_link].sh_size);
    text.push_back('\0');
    for (const auto& symbol : symbols) {
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_value != 0 && symbol.st_name < text.size()) {
        names[symbol.st_value] = text.data() + symbol.st_name;
      }
    }
  }
  return names;
}

// Without namespaces and parameters: "sum_kernel<float>".
std::string shorten(std::string name) {
  const auto drop = [&name](const std::string& part) {
    for (auto at = name.find(part); at != std::string::npos; at = name.find(part)) {
      name.erase(at, part.size());
    }
  };
  drop("(anonymous namespace)::");
  drop("convnet::cuda::");
  name = name.substr(0, name.rfind('('));
  return name.starts_with("void ") ? name.substr(5) : name;
}

std::string demangle(const std::string& symbol) {
  int status = 0;
  char* text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  const std::string name = status == 0 ? shorten(text) : symbol;
  std::free(text);
  return name;
}

std::string find_name(const void* kernel) {
  std::ostringstream address;
  address << "kernel " << kernel;
  Dl_info information{};
  link_map* map = nullptr;
  if (dladdr1(kernel, &information, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0) {
    return address.str();
  }
  static std::map<std::string, Names> files;
  // The program itself is called by the name that it was started with, which need not be a path.
  const std::string path = map->l_name[0] == '\0' ? "/proc/self/exe" : map->l_name;
  if (!files.contains(path)) {
    files[path] = read_names(path.c_str());
  }
  const auto name = files[path].find(reinterpret_cast<std::uintptr_t>(kernel) - map->l_addr);
  return name == files[path].end() ? address.str() : demangle(name->second);
}

}  // namespace

std::string kernel_name(const void* kernel) {
  static std::map<const void*, std::string> names;
  const auto known = names.find(kernel);
  return known != names.end() ? known->second : names[kernel] = find_name(kernel);
}

}  // namespace standin
